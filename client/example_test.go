package client_test

import (
	"context"
	"errors"
	"log"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

// What a sandbox runtime does: ask before it plumbs, bind where it plumbed,
// release when the sandbox is to end. plumb and remove are the runtime's own.
func Example() {
	var ipamd client.Client // on /run/ipamd/ipamd.sock
	ctx := context.Background()

	given, err := ipamd.Allocate(ctx, api.AllocateRequest{Sandbox: "web-7f3a", UID: "0b6f3c52"})
	if errors.Is(err, client.ErrPoolExhausted) {
		log.Fatal("no address left; try later: ", err)
	} else if err != nil {
		log.Fatal(err)
	}
	lease, network := given.Leases[0], given.Networks[0]
	if _, err := ipamd.Bind(ctx, lease.ID, plumb(lease, network)); err != nil {
		log.Fatal(err)
	}
	// ... the sandbox runs, and ends ...
	if _, err := ipamd.Release(ctx, lease.ID, api.ReleaseRequest{UID: lease.UID}); err != nil {
		log.Fatal(err)
	}
	remove(lease.Sandbox)
}

func plumb(api.Lease, api.Network) api.BindRequest {
	return api.BindRequest{
		Containers:    []api.Container{{Namespace: "default", ID: "web-7f3a"}},
		Netns:         "/run/netns/web-7f3a",
		HostInterface: "veth7f3a",
	}
}

func remove(string) {}
