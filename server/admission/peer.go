package admission

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/server/socket"
)

// A Peer is the process at the other end of a connection, as it was when it
// connected. It is judged once.
type Peer struct {
	Name   string   // "uid=0 pid=4242", for the record
	Holder Holder   // who it is for the limits
	Role   api.Role // "" has no rights at all
	Why    string   // why it has none
}

// A Judge says who a peer is and what it may. It is safe for concurrent use.
type Judge struct {
	uids, gids []uint32 // that may change leases, beside root
	userns     string   // our own user namespace, as /proc spells it
	log        *slog.Logger
}

// NewJudge makes a judge for whom those users and groups, by number, may change leases.
func NewJudge(uids, gids []uint32, log *slog.Logger) (*Judge, error) {
	userns, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return nil, fmt.Errorf("read our own user namespace: %w", err)
	}
	return &Judge{uids: uids, gids: gids, userns: userns, log: log}, nil
}

// Identify judges the peer of a connection. Root is root only in our own user
// namespace: a sandbox whose root is mapped to a uid of the host can be handed
// the socket, and must not become admin by that (the AWS agent let any process
// that reached its port act, aws/amazon-vpc-cni-k8s#3739).
func (j *Judge) Identify(c net.Conn) *Peer {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return j.refuse(&Peer{Name: "not on a unix socket", Holder: Unidentified}, 0, "is not on a unix socket")
	}
	cred, err := socket.Credentials(uc)
	if err != nil {
		return j.refuse(&Peer{Name: "unknown", Holder: Unidentified}, 0, err.Error())
	}
	p := &Peer{Name: fmt.Sprintf("uid=%d pid=%d", cred.Uid, cred.Pid), Holder: Holder{UID: cred.Uid}}
	if err := j.sameUsers(uc, cred.Pid); err != nil {
		return j.refuse(p, cred.Uid, err.Error())
	}
	switch {
	case cred.Uid == 0:
		p.Role = api.Admin
	case slices.Contains(j.uids, cred.Uid), slices.Contains(j.gids, cred.Gid):
		p.Role = api.Runtime
	default:
		groups, err := socket.Groups(uc)
		if err != nil {
			return j.refuse(p, cred.Uid, err.Error())
		}
		p.Role = api.Reader
		for _, gid := range groups {
			if slices.Contains(j.gids, gid) {
				p.Role = api.Runtime
			}
		}
	}
	if p.Role.Includes(api.Runtime) {
		p.Holder.PID = cred.Pid
	}
	return p
}

// Unidentified is the holder of connections without credentials.
var Unidentified = Holder{UID: math.MaxUint32}

// refuse leaves a peer without a role. The line names the user only, so that the log
// can hold back those that repeat.
func (j *Judge) refuse(p *Peer, uid uint32, why string) *Peer {
	p.Why = why
	j.log.Warn("a peer is refused", "uid", uid, "reason", why)
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
// the process that gets its pid next.
func (j *Judge) sameUsers(c *net.UnixConn, pid int32) error {
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
	if theirs != j.userns {
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
