package bridge

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

// Missing returns which of some names are those of no link, in the namespace at the path netns;
// "" is the process's own. A name that the kernel could not be asked about is an error, and not
// missing.
func Missing(netns string, names ...string) (missing []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	in, err := openNetns(netns)
	if err != nil {
		return nil, err
	}
	defer in.close()
	k, err := in.dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	var errs []error
	for _, name := range names {
		switch _, err := k.LinkByName(name); {
		case rtnl.IsGone(err):
			missing = append(missing, name)
		case err != nil:
			errs = append(errs, fmt.Errorf("look up bridge %s: %w", name, err))
		}
	}
	return missing, errors.Join(errs...)
}
