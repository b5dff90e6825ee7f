package wake

import "context"

// hold has the tasks of a lease to itself: what freezes them and what resumes them come one
// after the other, each with the change of the book that says so.
func (f *Flights) hold(ctx context.Context, id string) (release func(), err error) {
	for {
		f.mu.Lock()
		held, is := f.held[id]
		if !is {
			held = make(chan struct{})
			f.held[id] = held
			f.mu.Unlock()
			return func() {
				f.mu.Lock()
				delete(f.held, id)
				f.mu.Unlock()
				close(held)
			}, nil
		}
		f.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
