package helper

import "sync"

// owners has one piece of work at a time done on an owner's port, from its making to the answer to
// its report, and the removal that may follow. Two at once undo each other: one ends as the other
// has made an address already, and takes away the port that the other was answered to have. Its
// zero value is ready.
type owners struct {
	mu   sync.Mutex
	held map[string]*ownerLock
}

type ownerLock struct {
	slot  chan struct{} // of one: full while the lock is held
	users int           // that have it or wait for it
}

// lock waits until no other has the owner. The result gives it back; it may be called twice.
func (o *owners) lock(owner string) (unlock func()) {
	o.mu.Lock()
	l := o.held[owner]
	if l == nil {
		if o.held == nil {
			o.held = make(map[string]*ownerLock)
		}
		l = &ownerLock{slot: make(chan struct{}, 1)}
		o.held[owner] = l
	}
	l.users++
	o.mu.Unlock()
	l.slot <- struct{}{}
	return sync.OnceFunc(func() {
		<-l.slot
		o.mu.Lock()
		defer o.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(o.held, owner)
		}
	})
}
