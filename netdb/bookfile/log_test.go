package bookfile

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// A walWriter writes a log as SQLite does, with small pages.
type walWriter struct {
	log    []byte
	salt   uint64
	sum    [2]uint32
	order  binary.ByteOrder
	page   int
	commit []int // where each commit ends, in bytes
}

func newWALWriter(salt uint64, magic uint32) *walWriter {
	w := &walWriter{salt: salt, page: 512, order: binary.LittleEndian}
	if magic&1 == 1 {
		w.order = binary.BigEndian
	}
	for _, v := range []uint32{magic, 3007000, uint32(w.page), 1, uint32(salt >> 32), uint32(salt)} {
		w.log = binary.BigEndian.AppendUint32(w.log, v)
	}
	w.add(w.log)
	w.log = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(w.log, w.sum[0]), w.sum[1])
	return w
}

func (w *walWriter) add(b []byte) {
	for i := 0; i < len(b); i += 8 {
		w.sum[0] += w.order.Uint32(b[i:]) + w.sum[1]
		w.sum[1] += w.order.Uint32(b[i+4:]) + w.sum[0]
	}
}

// transaction writes pages of one commit.
func (w *walWriter) transaction(random *rand.Rand, pages int) {
	for i := range pages {
		head := binary.BigEndian.AppendUint32(nil, uint32(1+random.IntN(9)))
		size := uint32(0)
		if i == pages-1 {
			size = 9
		}
		head = binary.BigEndian.AppendUint32(head, size)
		w.add(head)
		head = binary.BigEndian.AppendUint64(head, w.salt)
		page := make([]byte, w.page)
		for i := range page {
			page[i] = byte(random.Uint32())
		}
		w.add(page)
		head = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(head, w.sum[0]), w.sum[1])
		w.log = append(append(w.log, head...), page...)
	}
	w.commit = append(w.commit, len(w.log))
}

// F14: no power loss passes for damage, and no damage for a power loss: of a log that
// begins anew over an older one, the sectors of the last commit, which was not
// acknowledged, are there or not in any selection; what refused commits left may lie
// behind. And a bit that flips with two commits behind it is always seen.
func FuzzWalkLog(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, seed%8 == 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, big bool) {
		random := rand.New(rand.NewPCG(seed, 14))
		magic := uint32(0x377f0682)
		if big {
			magic++
		}
		old := newWALWriter(7<<32|random.Uint64N(1<<32), magic)
		for range random.IntN(12) {
			old.transaction(random, 1+random.IntN(4))
		}
		w := newWALWriter(8<<32|random.Uint64N(1<<32), magic)
		for range 1 + random.IntN(5) {
			w.transaction(random, 1+random.IntN(4))
			if random.IntN(3) == 0 { // one that was refused, because it could not be synced
				refused := *w
				refused.log = bytes.Clone(w.log)
				refused.transaction(random, 1+random.IntN(6))
				old.log = over(old.log, refused.log)
			}
		}
		acked := len(w.log)
		w.transaction(random, 1+random.IntN(6))
		disk := over(old.log, w.log[:acked])
		for s := acked / 512 * 512; s < len(w.log); s += 512 {
			if random.IntN(2) == 0 {
				end := min(s+512, len(w.log))
				for len(disk) < end {
					disk = append(disk, 0)
				}
				copy(disk[s:end], w.log[s:end])
			}
		}
		if end, err := walkLog(bytes.NewReader(disk)); end.Broken != "" || err != nil {
			t.Fatalf("a power loss passes for damage: %s, %v", end.Broken, err)
		}

		if len(w.commit) < 4 {
			return
		}
		whole := over(old.log, w.log)
		broken := bytes.Clone(whole)
		broken[random.IntN(w.commit[len(w.commit)-3])] ^= 1 << random.IntN(8)
		if end, err := walkLog(bytes.NewReader(broken)); end.Broken == "" || err != nil {
			t.Fatalf("damage is not seen: %v", err)
		}
		if end, err := walkLog(bytes.NewReader(whole)); end.Broken != "" || err != nil {
			t.Fatalf("a whole log: %s, %v", end.Broken, err)
		}
	})
}

// over writes a log over another one.
func over(old, log []byte) []byte {
	out := bytes.Clone(log)
	if len(old) > len(log) {
		out = append(out, old[len(log):]...)
	}
	return out
}
