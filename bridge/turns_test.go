package bridge

import (
	"testing"

	"github.com/ipamd/ipamd/internal/realtest"
)

// Who waits comes before the one who lets go and wants it back at once.
func TestTurnsAreTaken(t *testing.T) {
	var lock turns
	for range 100 {
		entered := false
		lock.Lock()
		go func() {
			lock.Lock()
			entered = true
			lock.Unlock()
		}()
		realtest.Eventually(t, wait, "the other to wait", func() bool {
			free := lock.gate.TryLock()
			if free {
				lock.gate.Unlock()
			}
			return !free
		})
		lock.Unlock()
		lock.Lock()
		if !entered {
			t.Fatal("who had it last took it back before who waited")
		}
		lock.Unlock()
	}
}
