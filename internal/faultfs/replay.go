package faultfs

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// sector is what a disk writes whole or not at all, in bytes.
const sector = 512

// A Replay goes through what was done to a disk, one operation after the
// other, and keeps apart what is sure to be there and what is not.
type Replay struct {
	trace   []Op
	at      int
	files   map[uint64]*state
	names   map[string]uint64 // confirmed by a SyncDir
	unnamed []Op              // since then
}

// A state is one file's.
type state struct {
	sure   []byte
	unsure []Op // writes and truncations since the last Sync
}

// Step takes the next operation, and says which; false at the end.
func (r *Replay) Step() (Op, bool) {
	if r.at == len(r.trace) {
		return Op{}, false
	}
	op := r.trace[r.at]
	r.at++
	switch op.Kind {
	case Create:
		r.files[op.inode] = new(state)
		r.unnamed = append(r.unnamed, op)
	case Unlink, Rename:
		r.unnamed = append(r.unnamed, op)
	case SyncDir:
		r.names = named(r.names, r.unnamed)
		r.unnamed = nil
	case Write, Truncate:
		f := r.files[op.inode]
		f.unsure = append(f.unsure, op)
	case Sync:
		f := r.files[op.inode]
		if !op.Lost {
			for _, u := range f.unsure {
				f.sure = u.on(f.sure)
			}
		}
		f.unsure = nil
	}
	return op, true
}

// Done is the number of operations taken.
func (r *Replay) Done() int { return r.at }

// Cut returns what the disk holds when the power goes now. Without chance that
// is what is sure. With it some of the rest is there, too: writes in any
// selection, whole or some sectors of them; changes of names up to some point,
// as a journal keeps them in order.
func (r *Replay) Cut(chance *rand.Rand) Image {
	names := r.names
	if chance != nil && len(r.unnamed) > 0 {
		names = named(names, r.unnamed[:chance.IntN(len(r.unnamed)+1)])
	}
	left := make(Image, len(names))
	for name, inode := range names {
		f := r.files[inode]
		data := slices.Clone(f.sure)
		if chance != nil {
			for _, u := range f.unsure {
				data = u.partly(data, chance)
			}
		}
		left[name] = data
	}
	return left
}

// named carries changes of names out on a copy.
func named(names map[string]uint64, ops []Op) map[string]uint64 {
	names = maps.Clone(names)
	for _, op := range ops {
		switch op.Kind {
		case Create:
			names[op.Name] = op.inode
		case Unlink:
			delete(names, op.Name)
		case Rename:
			names[op.To] = names[op.Name]
			delete(names, op.Name)
		}
	}
	return names
}

func (o Op) on(data []byte) []byte {
	if o.Kind == Truncate {
		return resized(data, o.Off)
	}
	return written(data, o.Off, o.Data)
}

// partly carries a write out, or not, or some of its sectors.
func (o Op) partly(data []byte, chance *rand.Rand) []byte {
	switch chance.IntN(3) {
	case 0:
		return data
	case 1:
		return o.on(data)
	}
	if o.Kind == Truncate {
		return data
	}
	for from := o.Off; from < o.Off+int64(len(o.Data)); {
		to := min(from-from%sector+sector, o.Off+int64(len(o.Data)))
		if chance.IntN(2) == 0 {
			data = written(data, from, o.Data[from-o.Off:to-o.Off])
		}
		from = to
	}
	return data
}

// An Image is what a disk holds: its files by name.
type Image map[string][]byte

// Sum is the same for images that are.
func (i Image) Sum() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(i)) {
		fmt.Fprintf(h, "%q %d\n", name, len(i[name]))
		h.Write(i[name])
	}
	return string(h.Sum(nil))
}

// Write puts the files into a folder that is there.
func (i Image) Write(dir string) error {
	for name, data := range i {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("write an image: %w", err)
		}
	}
	return nil
}
