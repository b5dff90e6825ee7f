package owner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/ipamd/ipamd/internal/peercred"
)

// dial connects to the owner's socket, and believes who listens there only if it is a
// user that may speak for the owner. "Gone" ends containers, and the first to come can
// listen in a folder that any user may write to.
func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	if err := c.checkFolder(); err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", c.cfg.Socket)
	if err != nil {
		return nil, err
	}
	if err := c.checkPeer(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// speaks reports that a user may speak for the owner: root, the daemon's own, and
// those that are configured.
func (c *Client) speaks(uid uint32) bool {
	return uid == 0 || int(uid) == os.Geteuid() || slices.Contains(c.cfg.UIDs, uid)
}

// checkPeer judges who made the socket listen.
func (c *Client) checkPeer(conn net.Conn) error {
	peer, err := peercred.Of(conn.(syscall.Conn))
	if err != nil {
		return fmt.Errorf("ask who listens on %s: %w", c.cfg.Socket, err)
	}
	if !c.speaks(peer.Uid) {
		return fmt.Errorf("process %d of uid %d listens on %s, and owner.uids does not name it: it is not believed", peer.Pid, peer.Uid, c.cfg.Socket)
	}
	return nil
}

// checkFolder judges the folders on the way to the socket: others could put a socket of
// theirs into one that they may write to, or another folder in its place.
func (c *Client) checkFolder() error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(c.cfg.Socket))
	if err != nil {
		return err
	}
	for at, last := dir, false; !last; at = filepath.Dir(at) {
		st, err := os.Stat(at)
		if err != nil {
			return err
		}
		of := st.Sys().(*syscall.Stat_t).Uid
		sticky := st.Mode()&fs.ModeSticky != 0 && at != dir // no other user renames there what is another's
		switch {
		case !c.speaks(of):
			return fmt.Errorf("folder %s of the owner's socket belongs to uid %d, and owner.uids does not name it: what listens there is not trusted", at, of)
		case st.Mode().Perm()&0o002 != 0 && !sticky:
			return fmt.Errorf("any user may write to folder %s of the owner's socket (mode %04o): what listens there is not trusted", at, st.Mode().Perm())
		}
		last = at == "/" || at == "."
	}
	return nil
}
