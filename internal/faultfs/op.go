package faultfs

import (
	"fmt"
	"syscall"
)

// A Kind is what an operation does.
type Kind string

// The operations that a disk can fail. Stat, Read, Open and Room
// change nothing and are not recorded.
const (
	Stat     Kind = "stat" // of a file, and each search for one by name
	Open     Kind = "open"
	Read     Kind = "read"
	Room     Kind = "room" // statfs
	Create   Kind = "create"
	Write    Kind = "write"
	Truncate Kind = "truncate"
	Sync     Kind = "sync" // fsync or fdatasync of a file
	Unlink   Kind = "unlink"
	Rename   Kind = "rename"
	SyncDir  Kind = "syncdir" // fsync of the folder
)

// Note is no operation: it stands in the record for the text of a [Disk.Note].
const Note Kind = "note"

// Changes reports whether the operation changes the disk or confirms a change.
func (k Kind) Changes() bool { return k != Stat && k != Open && k != Read && k != Room }

// An Op is one operation.
type Op struct {
	Kind Kind
	Name string // of the file in the folder; of the old one for Rename
	To   string // for Rename
	Off  int64  // for Write; for Truncate, the new size in bytes
	Data []byte // for Write
	Lost bool   // a Sync that failed

	inode uint64 // names come and go, and may mean another file later
}

func (o Op) String() string {
	switch o.Kind {
	case Write:
		return fmt.Sprintf("write %d bytes at %d of %s", len(o.Data), o.Off, o.Name)
	case Truncate:
		return fmt.Sprintf("truncate %s to %d", o.Name, o.Off)
	case Rename:
		return fmt.Sprintf("rename %s to %s", o.Name, o.To)
	}
	return fmt.Sprintf("%s %s", o.Kind, o.Name)
}

// A Fault is how an operation fails. The zero one does not.
type Fault struct {
	// Err is the answer. A Sync that fails takes what it should have
	// confirmed for clean all the same, as Linux does: a later one answers
	// well and does not write it either, and reads still show it.
	Err syscall.Errno
	// Short is how many bytes a Write takes when it takes fewer than it was
	// given; 0 takes all. Ignored with Err.
	Short int
	// Garbled inverts every bit that a Read brings.
	Garbled bool
}
