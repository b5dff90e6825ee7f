package allocator

import (
	"context"
	"errors"
	"fmt"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// findName chooses the name of a link for a request that wants one: its interface's own,
// or one that no other has in the book and no link has on the host. The kernel is asked
// outside of the transaction, for it may take its time; and it makes no second link of a
// name.
func (c *call) findName(ctx context.Context) error {
	if c.req.HostName == "" {
		return nil
	}
	for name, own := range c.Book.Names(c.req.UID, c.req.Interface, c.req.HostName) {
		c.naming = netdb.Naming{Want: c.req.HostName, Name: name}
		if own {
			return nil
		}
		there, err := c.HasLink(ctx, name)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrEvidence, err)
		}
		if !there {
			return nil
		}
	}
	return fmt.Errorf("host interface name %s: %w: another lease, or a link of the host, has it", c.req.HostName, ipam.ErrNameTaken)
}

// nameOf gives a lease that was there the name that the request wants. One that is to be
// answered and has it already is not written.
func (c *call) nameOf(ctx context.Context, l *ipam.Lease) (*ipam.Lease, error) {
	for c.req.HostName != "" {
		if err := c.findName(ctx); err != nil {
			return nil, err
		}
		who := c.who
		who.Reason = "named"
		named, err := c.Book.Name(ctx, who, l.ID, c.naming)
		if err != nil && c.otherName(err) {
			continue
		}
		return named, err
	}
	return l, nil
}

// otherName reports that a name of a pattern was given to another since it was chosen:
// there are others. An exact one is refused.
func (c *call) otherName(err error) bool {
	return errors.Is(err, ipam.ErrNameTaken) && c.naming.Want != c.naming.Name
}
