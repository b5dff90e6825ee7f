package ctrd

import "sync"

// news is a broadcast without a payload: look again. Its zero value works.
type news struct {
	mu sync.Mutex
	ch chan struct{}
}

// changed returns a channel that the next broadcast closes.
func (n *news) changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *news) broadcast() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}

// Changed returns a channel that is closed at the next event about any
// container, after each whole reading, and when containerd is lost.
func (w *Witness) Changed() <-chan struct{} { return w.news.changed() }
