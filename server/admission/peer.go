package admission

import (
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/peercred"
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
	userns, err := socket.Users()
	if err != nil {
		return nil, err
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
	cred, err := peercred.Of(uc)
	if err != nil {
		return j.refuse(&Peer{Name: "unknown", Holder: Unidentified}, 0, err.Error())
	}
	p := &Peer{Name: fmt.Sprintf("uid=%d pid=%d", cred.Uid, cred.Pid), Holder: Holder{UID: cred.Uid}}
	if err := socket.SameUsers(uc, cred.Pid, j.userns); err != nil {
		return j.refuse(p, cred.Uid, err.Error())
	}
	switch {
	case cred.Uid == 0:
		p.Role = api.Admin
	case slices.Contains(j.uids, cred.Uid), slices.Contains(j.gids, cred.Gid):
		p.Role = api.Runtime
	default:
		groups, err := peercred.Groups(uc)
		if err != nil {
			return j.refuse(p, cred.Uid, err.Error())
		}
		p.Role = api.Reader
		if slices.ContainsFunc(groups, func(gid uint32) bool { return slices.Contains(j.gids, gid) }) {
			p.Role = api.Runtime
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
