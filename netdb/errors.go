package netdb

import (
	"errors"

	"github.com/ipamd/ipamd/netdb/bookfile"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// Errors of Open, but for ErrIdentity. Each refusal leaves the file untouched.
var (
	// ErrLocked means that another process has the book open.
	ErrLocked = bookfile.ErrLocked
	// The file is no lease book of ipamd, was made by another version of it, or is broken.
	ErrNotABook    = sqlite.ErrNotABook
	ErrNewerSchema = sqlite.ErrNewerSchema
	ErrOlderSchema = sqlite.ErrOlderSchema
	ErrOldBuild    = sqlite.ErrOldBuild
	ErrDamaged     = sqlite.ErrDamaged
	// ErrIdentity means that the book was made for another runner or on
	// another machine. Open does not refuse it: see [Book.CheckIdentity].
	ErrIdentity = errors.New("the book belongs to another runner")
	// ErrExposed means that all users may write to the book, or make files beside it.
	ErrExposed = bookfile.ErrExposed
)

// Errors of the file. Retry; reads keep working.
var (
	// Another process holds its lock, it cannot be written, or its files were taken away.
	ErrBusy     = sqlite.ErrBusy
	ErrReadOnly = sqlite.ErrReadOnly
	ErrMoved    = sqlite.ErrMoved
	// ErrLogHeld means that the log is long, over 16 MiB, because a reader that
	// does not end, or one behind the other, keeps it from beginning anew. Requests do not meet it: it is
	// in [Info], as Growing.
	ErrLogHeld = errors.New("a reader holds the log")
)
