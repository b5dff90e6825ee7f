package bridge

import (
	"sync"

	"github.com/ipamd/ipamd/internal/broadcast"
)

// moves is what subscribers are told of the ports. It has a lock of its own, which
// nobody holds for long: who only reads it does not wait for the kernel.
type moves struct {
	changed broadcast.Signal // at the next move
	mu      sync.Mutex
	// Of the ports, by name; each is replaced as a whole.
	names map[string]bool
	macs  map[string]string
}

func (m *moves) tell(ports map[int]*port) {
	names := make(map[string]bool, len(ports))
	macs := make(map[string]string, len(ports))
	for _, p := range ports {
		names[p.link.Name], macs[p.link.Name] = true, p.link.MAC.String()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names, m.macs = names, macs
	m.changed.Send()
}

func (m *moves) ports() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.names
}

func (m *moves) portMACs() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.macs
}
