package config

import (
	"fmt"
	"io/fs"
	"math"
	"os/user"
	"strconv"
)

// FileMode reads the socket's mode.
func (s Socket) FileMode() (fs.FileMode, error) {
	mode, err := strconv.ParseUint(s.Mode, 8, 32)
	if err != nil || mode == 0 || mode > 0o777 {
		return 0, fmt.Errorf("%.40q is no mode in octal, like '0660'", s.Mode)
	}
	return fs.FileMode(mode), nil
}

// InFlight is how many calls of one peer may be under way: at most half of the connections, so
// that others have room.
func (s Socket) InFlight() int { return min(s.MaxInFlight, max(s.MaxConnections/2, 1)) }

// GID looks the socket's group up on this machine; -1 keeps the daemon's own.
// A group that is not there is refused rather than left out: it is as likely
// misspelt as not made yet.
func (s Socket) GID() (int, error) {
	if s.Group == "" {
		return -1, nil
	}
	if gid, err := strconv.ParseUint(s.Group, 10, 32); err == nil && gid < math.MaxUint32 {
		return int(gid), nil
	}
	group, err := user.LookupGroup(s.Group)
	if err != nil {
		return 0, fmt.Errorf("this machine has no group %q: make it (groupadd --system %s), or set group = ''",
			s.Group, s.Group)
	}
	return strconv.Atoi(group.Gid)
}
