package server

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/server/socket"
)

// A peer is the process at the other end of a connection, as it was when it
// connected. It is judged once.
type peer struct {
	name   string   // "uid=0 pid=4242", for the record
	holder holder   // who it is for the limits
	role   api.Role // "" has no rights at all
	why    string   // why it has none
}

// identify judges the peer of a connection. Root is root only in our own user
// namespace: a sandbox whose root is mapped to a uid of the host can be handed
// the socket, and must not become admin by that (the AWS agent let any process
// that reached its port act, aws/amazon-vpc-cni-k8s#3739).
func (s *Server) identify(c net.Conn) *peer {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return s.stranger(&peer{name: "not on a unix socket", holder: nobody}, 0, "is not on a unix socket")
	}
	cred, err := socket.Credentials(uc)
	if err != nil {
		return s.stranger(&peer{name: "unknown", holder: nobody}, 0, err.Error())
	}
	p := &peer{name: fmt.Sprintf("uid=%d pid=%d", cred.Uid, cred.Pid), holder: holder{uid: cred.Uid}}
	if err := s.sameUsers(uc, cred.Pid); err != nil {
		return s.stranger(p, cred.Uid, err.Error())
	}
	switch {
	case cred.Uid == 0:
		p.role = api.Admin
	case slices.Contains(s.cfg.RuntimeUIDs, cred.Uid), slices.Contains(s.cfg.RuntimeGIDs, cred.Gid):
		p.role = api.Runtime
	default:
		groups, err := socket.Groups(uc)
		if err != nil {
			return s.stranger(p, cred.Uid, err.Error())
		}
		p.role = api.Reader
		for _, gid := range groups {
			if slices.Contains(s.cfg.RuntimeGIDs, gid) {
				p.role = api.Runtime
			}
		}
	}
	if p.role.Includes(api.Runtime) {
		p.holder.pid = cred.Pid
	}
	return p
}

// nobody is the holder of connections without credentials.
var nobody = holder{uid: math.MaxUint32}

func (s *Server) stranger(p *peer, uid uint32, why string) *peer {
	p.why = why
	s.refused.note(p, uid, why)
	return p
}

var (
	errOtherUsers = errors.New("is in another user namespace")
	errOtherPids  = errors.New("is in a pid namespace that we cannot see")
	errEnded      = errors.New("has ended")
)

// sameUsers reports why a peer's uid cannot be taken at its word. The
// namespace is read by pid, and the pid is held still by the socket's pidfd
// (Linux 6.5): a process that connects and ends cannot lend its judgement to
// whoever gets its pid next.
func (s *Server) sameUsers(c *net.UnixConn, pid int32) error {
	if pid == 0 {
		return errOtherPids
	}
	pidfd, err := socket.Option(c, unix.SO_PEERPIDFD)
	switch {
	case errors.Is(err, unix.ENOPROTOOPT):
		pidfd = -1 // an older kernel
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL):
		return errEnded
	case err != nil:
		return fmt.Errorf("hold its pid: %w", err)
	default:
		defer unix.Close(pidfd)
	}
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return errEnded
	case err != nil:
		return fmt.Errorf("its user namespace is unreadable: %w", errors.Unwrap(err))
	}
	if pidfd >= 0 {
		if err := alive(pidfd); err != nil {
			return err
		}
	}
	if theirs != s.userns {
		return errOtherUsers
	}
	return nil
}

// alive asks by poll, which needs no right to signal the process.
func alive(pidfd int) error {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
		switch {
		case errors.Is(err, unix.EINTR): // the Go scheduler's own signals
		case err != nil:
			return fmt.Errorf("ask whether it lives: %w", err)
		case n != 0:
			return errEnded
		default:
			return nil
		}
	}
}

// refusals logs each refused (uid, reason) once. It is bounded: a flood of
// uids fills the map and then one last line says so.
type refusals struct {
	log  *slog.Logger
	mu   sync.Mutex
	seen map[refusal]struct{}
	full bool
}

type refusal struct {
	uid uint32
	why string
}

const refusalsKept = 256

func (r *refusals) note(p *peer, uid uint32, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := refusal{uid, why}
	if _, known := r.seen[key]; known || r.full {
		return
	}
	if r.seen == nil {
		r.seen = make(map[refusal]struct{})
	}
	r.seen[key] = struct{}{}
	r.full = len(r.seen) == refusalsKept
	r.log.Warn("a peer is refused", "peer", p.name, "reason", why, "last_to_be_logged", r.full)
}
