package routes

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
)

// hash is of a route's whole content. The sum of all is the table's, in whatever order
// they came.
func (r *Route) hash() uint64 {
	var on [512]byte
	b := on[:0]
	for _, s := range [...]string{r.Sandbox, r.UID, r.Interface, r.Lease, string(r.State)} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...) // "ab", "c" is not "a", "bc"
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Attempt))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Revision))
	addr := r.Addr.As16()
	return xxhash.Sum64(append(b, addr[:]...))
}

// A Status is what a table says of itself.
type Status struct {
	Ready    bool   `json:"ready"` // there was a complete list
	Epoch    string `json:"epoch"`
	Revision int64  `json:"revision"` // the table is complete up to here
	Ahead    int    `json:"ahead"`    // addresses of which pushes brought newer news
	Lag      int64  `json:"lag"`      // revisions that the daemon is known to have beyond
	Routes   int    `json:"routes"`
	Checksum uint64 `json:"checksum"`
	// Age is since when the daemon has said nothing. Routes do not go for that.
	Age time.Duration `json:"age_ns"`
}

// String is the line by which two gateways compare themselves: at the same epoch and
// revision, and with nothing ahead, equal tables have equal lines.
func (s Status) String() string {
	return fmt.Sprintf("epoch %s revision %d ahead %d routes %d checksum %016x", s.Epoch, s.Revision, s.Ahead, s.Routes, s.Checksum)
}

// Status returns the table's. It counts nothing over.
func (t *Table) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Status{Ready: t.epoch != "", Epoch: t.epoch, Revision: t.position, Ahead: len(t.ahead), Lag: t.latest - t.position, Checksum: t.sum, Routes: t.kept}
	if !t.word.IsZero() {
		s.Age = t.now().Sub(t.word)
	}
	return s
}
