package api

// An EventType says what a line of the stream is.
type EventType string

const (
	EventChange   EventType = "change"   // something became different
	EventBookmark EventType = "bookmark" // all up to the revision was sent, of every kind that was asked for
	EventError    EventType = "error"    // the last line: why the stream ends
)

// A Kind is what a change is about.
type Kind string

const (
	KindLease   Kind = "lease"   // an address's move
	KindAttempt Kind = "attempt" // a sandbox uid's attempts up to this one were cancelled
	KindPool    Kind = "pool"
	KindBook    Kind = "book"
)

// An Event is one line of the stream of changes.
type Event struct {
	Type     EventType `json:"type"`
	Kind     Kind      `json:"kind,omitempty"` // of a change
	Change   *Change   `json:"change,omitempty"`
	Error    *Error    `json:"error,omitempty"`
	Revision int64     `json:"revision"` // all changes up to this one were sent, of the kinds that were asked for
	Epoch    string    `json:"epoch"`
}
