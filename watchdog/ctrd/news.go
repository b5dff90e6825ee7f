package ctrd

// Changed returns a channel that is closed at the next event about any
// container, after each whole reading, and when containerd is lost.
func (w *Witness) Changed() <-chan struct{} { return w.news.Next() }
