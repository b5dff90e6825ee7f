package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/ipamd/ipamd/api"
)

// Allocate asks for an address for one interface of a sandbox. Asked again
// for the same (pool, uid, interface, family) it returns the same lease, with
// Existing set.
func (c *Client) Allocate(ctx context.Context, ask api.AllocateRequest) (*api.AllocateReply, error) {
	return call[api.AllocateReply](ctx, c, "allocate for "+ask.Sandbox, "POST", "/v1/leases", ask)
}

// Bind records where the lease is used, beside what is recorded of it. The same
// content again changes nothing.
//
// where.IfRevision is best the [api.Lease.Revision] of the answer that the
// caller acts on: a request that was delayed behind a younger one of the same
// lease is [ErrStaleRevision] then, and does not undo it. Of callers that leave
// it out, the last one wins. To ask again after a lost reply is fine.
func (c *Client) Bind(ctx context.Context, id string, where api.BindRequest) (*api.LeaseReply, error) {
	return c.onLease(ctx, "bind", id, where)
}

// Pause says that the sandbox is frozen or hibernated: its address stays its
// own without limit. ask.IfRevision is as of [Client.Bind].
func (c *Client) Pause(ctx context.Context, id string, ask api.PauseRequest) (*api.LeaseReply, error) {
	return c.onLease(ctx, "pause", id, ask)
}

// Resume ends a pause.
func (c *Client) Resume(ctx context.Context, id string, ask api.PauseRequest) (*api.LeaseReply, error) {
	return c.onLease(ctx, "resume", id, ask)
}

// Wake has a paused sandbox woken, or joins the wake that is under way. The reply's lease is
// paused, with its flight, until the sandbox is resumed; ask.Wait waits for that.
func (c *Client) Wake(ctx context.Context, id string, ask api.WakeRequest) (*api.LeaseReply, error) {
	return c.onLease(ctx, "wake", id, ask)
}

// AckWake says how far a flight is that was announced to the runtime. A flight that is unknown or
// has ended is an error, and nothing is changed.
func (c *Client) AckWake(ctx context.Context, id string, ask api.AckRequest) (*api.LeaseReply, error) {
	return call[api.LeaseReply](ctx, c, "wake "+id, "POST", "/v1/leases/"+url.PathEscape(id)+"/wake/ack", ask)
}

// Release releases a lease. The reply's lease is releasing, with the blockers,
// until the removal of its workload is confirmed; ask.Wait waits for that:
//
//	ipamd.Release(ctx, id, api.ReleaseRequest{Wait: api.Lasting(10 * time.Second)})
func (c *Client) Release(ctx context.Context, id string, ask api.ReleaseRequest) (*api.LeaseReply, error) {
	return c.onLease(ctx, "release", id, ask)
}

// ForceRelease quarantines the address of a releasing lease whose removal
// cannot be confirmed; it wants the admin role. The address rests once no sandbox has
// seen it for long enough.
func (c *Client) ForceRelease(ctx context.Context, id string, ask api.ForceReleaseRequest) (*api.LeaseReply, error) {
	return c.onLease(ctx, "force-release", id, ask)
}

func (c *Client) onLease(ctx context.Context, verb, id string, ask any) (*api.LeaseReply, error) {
	return call[api.LeaseReply](ctx, c, verb+" "+id, "POST", "/v1/leases/"+url.PathEscape(id)+"/"+verb, ask)
}

// Cancel refuses attempts of a sandbox up to this one, also those that arrive
// later, and releases what they hold.
func (c *Client) Cancel(ctx context.Context, ask api.CancelRequest) (*api.CancelReply, error) {
	return call[api.CancelReply](ctx, c, "cancel "+ask.UID, "POST", "/v1/tombstones", ask)
}

// A LeaseFilter selects leases; every field that is set must match.
type LeaseFilter struct {
	Sandbox, State, Pool string
}

// pageOf is how many leases Leases asks for at once.
const pageOf = 4096

// Leases lists leases in numeric order of their addresses, as they were at
// the reply's revision. It asks for them in pages; where the book changes between
// two of these, pages of one revision cannot be had, and it asks for all at once.
func (c *Client) Leases(ctx context.Context, f LeaseFilter) (*api.LeaseList, error) {
	all, err := c.LeasePage(ctx, f, "", pageOf)
	for err == nil && all.Next != "" {
		var page *api.LeaseList
		if page, err = c.LeasePage(ctx, f, all.Next, pageOf); err != nil {
			break
		}
		if page.Revision != all.Revision || page.Epoch != all.Epoch {
			return c.LeasePage(ctx, f, "", 0)
		}
		all.Leases, all.Next = append(all.Leases, page.Leases...), page.Next
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

// LeasePage lists up to limit leases behind an address, in numeric order of
// their addresses; "" begins with the first, and limit 0 is all. The reply's Next
// is where the next page goes on, and "" on the last. Each page is as the book was
// at its own revision.
func (c *Client) LeasePage(ctx context.Context, f LeaseFilter, after string, limit int) (*api.LeaseList, error) {
	return call[api.LeaseList](ctx, c, "list leases", "GET", query("/v1/leases", "sandbox", f.Sandbox, "state", f.State, "pool", f.Pool,
		"after", after, "limit", number(limit)), nil)
}

// number is "" for 0, which leaves a parameter out.
func number[T int | int64](n T) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

// Lease returns one lease: [ErrLeaseGone] when it has ended.
func (c *Client) Lease(ctx context.Context, id string) (*api.LeaseReply, error) {
	return call[api.LeaseReply](ctx, c, "look up lease "+id, "GET", "/v1/leases/"+url.PathEscape(id), nil)
}

// A HistoryFilter selects changes; every field that is set must match.
type HistoryFilter struct {
	Address, Sandbox, LeaseID string // Sandbox is a name or a uid
	Since                     time.Time
	Before                    int64 // revisions below this one: the last one of a page, for the next page
	Limit                     int   // 0: the daemon's
}

// History returns changes, newest first.
func (c *Client) History(ctx context.Context, f HistoryFilter) (*api.ChangeList, error) {
	var since string
	if !f.Since.IsZero() {
		since = f.Since.UTC().Format(time.RFC3339Nano)
	}
	return call[api.ChangeList](ctx, c, "read the history", "GET", query("/v1/changes", "address", f.Address,
		"sandbox", f.Sandbox, "lease", f.LeaseID, "since", since, "before", number(f.Before), "limit", number(f.Limit)), nil)
}

// Attach has the port of the lease's interface made in a network namespace, and the lease
// bound by what was made: all of it, or nothing. The same again is the same port. It
// needs ipamd-plumb; without it the answer is [ErrNotReady].
func (c *Client) Attach(ctx context.Context, id string, ask api.AttachRequest) (*api.LeaseReply, error) {
	return c.onLease(ctx, "attach", id, ask)
}

// Detach has the port taken away that Attach made. The lease stays: release it, or attach
// it again. A port that is not there is no error.
func (c *Client) Detach(ctx context.Context, id string, ask api.DetachRequest) (*api.LeaseReply, error) {
	return c.onLease(ctx, "detach", id, ask)
}
