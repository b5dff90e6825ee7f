package binding

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// compareWithin is how long the answer to a bind, which is durable by then, waits
// for the kernel.
const compareWithin = 250 * time.Millisecond

// Compare returns and logs where the names of a bind differ from what the kernel shows. l is the lease
// after the bind. It compares nothing that the kernel does not answer in time.
func (b *Book) Compare(ctx context.Context, l *ipam.Lease, asked ipam.Binding) []workload.BindDifference {
	if asked.HostInterface == "" && asked.MAC == "" && asked.Netns == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, compareWithin)
	defer cancel()
	if err := b.Kernel.Settle(ctx, l.Addr); err != nil {
		return nil
	}
	k := workload.KernelView{Seen: workload.About(b.Board, l).Seen, Ports: b.Kernel.PortMACs()}
	if asked.Netns != "" && len(k.Seen) > 0 {
		id, err := b.Kernel.NetnsID(ctx, l.Netns)
		switch {
		case err == nil:
			k.Netns = workload.Namespace{Known: true, ID: census.NewNetnsID(id, "")}
		case errors.Is(err, bridge.ErrNoNetnsID):
			k.Netns = workload.Namespace{Known: true}
		}
	}
	differences := workload.BindDiffers(l, asked, k)
	if len(differences) > 0 {
		sentences := make([]string, len(differences))
		for i, d := range differences {
			sentences[i] = d.Message
		}
		b.Log.Warn("a bind differs from what the kernel shows", "addr", l.Addr, "sandbox", l.Sandbox, "lease", l.ID, "differs", strings.Join(sentences, "; "))
	}
	return differences
}
