package ctrd

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
)

// An unansweredError says in words that containerd cannot be reached; the text of
// the library below it is that of a transport.
type unansweredError struct {
	address string
	why     error // the socket's; nil when it takes connections
	below   error
}

func (e *unansweredError) Error() string {
	if e.why == nil {
		return "containerd does not answer at " + e.address
	}
	return fmt.Sprintf("containerd does not answer at %s: %v", e.address, e.why)
}

func (e *unansweredError) Unwrap() error { return e.below }

// inWords replaces the error of a containerd that cannot be reached. Why it cannot
// is what its socket answers: the library says it in a sentence only.
func (k *calls) inWords(err error) error {
	if err == nil || !errdefs.IsUnavailable(err) && !errdefs.IsUnavailable(errgrpc.ToNative(err)) {
		return err
	}
	out := &unansweredError{address: k.cfg.Address, below: err}
	conn, failed := net.DialTimeout("unix", k.cfg.Address, 100*time.Millisecond)
	if failed == nil {
		_ = conn.Close()
		return out
	}
	if errno := syscall.Errno(0); errors.As(failed, &errno) {
		out.why = errno
	}
	return out
}
