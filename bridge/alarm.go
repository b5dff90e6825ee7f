package bridge

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// An alarm wakes a poll(2). It carries no payload: look again.
type alarm struct {
	mu sync.Mutex
	fd int
}

func newAlarm() (*alarm, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	return &alarm{fd: fd}, nil
}

// ring may come at any time, also after close.
func (a *alarm) ring() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd >= 0 {
		_, _ = unix.Write(a.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // full is as good as rung
	}
}

// quiet takes a ring back, before the one who was woken looks.
func (a *alarm) quiet() {
	_, _ = unix.Read(a.fd, make([]byte, 8)) // not rung is as good
}

func (a *alarm) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = unix.Close(a.fd)
	a.fd = -1
}
