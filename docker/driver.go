package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/client"
)

// Within bounds one request: Docker gives up on a plugin that answers nothing, and its
// users wait meanwhile. A daemon that starts again in this time is waited for.
const Within = 12 * time.Second

// A Driver answers libnetwork's requests. It is safe for concurrent use.
type Driver struct {
	Client *client.Client
	Log    *slog.Logger
	// Routes lists the destinations that the host has routes to, the default one left out:
	// Docker asks again without end for a pool that it finds among them.
	Routes func() ([]netip.Prefix, error)
	// NameServers lists the host's, which count as routes to Docker.
	NameServers func() []netip.Addr
	// Links names the host's links that have an address: Docker says of no request which
	// bridge its network is on, and gives that bridge the gateway.
	Links func(netip.Addr) ([]string, error)
}

// Serve answers on ln until ctx ends; requests that are under way then end. It closes ln.
func (d *Driver) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{Handler: d, ReadHeaderTimeout: Within, ErrorLog: slog.NewLogLogger(d.Log.Handler(), slog.LevelDebug)}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }() // ends with srv, whose Shutdown is waited for
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		last, cancel := context.WithTimeout(context.Background(), Within+time.Second)
		defer cancel()
		err = srv.Shutdown(last)
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// ServeHTTP serves the endpoints of a plugin that is an IPAM driver.
func (d *Driver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), Within)
	defer cancel()
	w.Header().Set("Content-Type", pluginContent) // a code that is written first would end the header
	switch r.URL.Path {
	case "/Plugin.Activate":
		answer(w, activation{[]string{"IpamDriver"}}, nil)
	case "/IpamDriver.GetCapabilities":
		// The MAC of a container's interface comes with the request for its address, so
		// that ipamd knows whose port shows it. The book remembers what was given: nothing
		// is to be said again after a restart.
		answer(w, capabilities{RequiresMACAddress: true}, nil)
	case "/IpamDriver.GetDefaultAddressSpaces":
		answer(w, addressSpaces{addressSpace, addressSpace}, nil)
	case "/IpamDriver.RequestPool":
		serve(d, ctx, w, r, d.requestPool)
	case "/IpamDriver.ReleasePool":
		serve(d, ctx, w, r, d.releasePool)
	case "/IpamDriver.RequestAddress":
		serve(d, ctx, w, r, d.requestAddress)
	case "/IpamDriver.ReleaseAddress":
		serve(d, ctx, w, r, d.releaseAddress)
	default:
		http.NotFound(w, r) // libnetwork takes it for a method that an older driver lacks
	}
}

// serve decodes a request, carries it out and answers. libnetwork ignores the code of an
// answer that it can read.
func serve[Ask, Reply any](d *Driver, ctx context.Context, w http.ResponseWriter, r *http.Request, do func(context.Context, Ask) (Reply, error)) {
	var ask Ask
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostRequest)).Decode(&ask); err != nil {
		d.Log.Warn("a request of Docker cannot be read", "request", r.URL.Path, "err", err)
		w.WriteHeader(http.StatusBadRequest)
		answer(w, nil, fmt.Errorf("the request cannot be read: %w", err))
		return
	}
	reply, err := do(ctx, ask)
	if err != nil {
		d.Log.Warn("a request of Docker is refused", "request", r.URL.Path, "asked", fmt.Sprintf("%+v", ask), "err", err)
	} else {
		d.Log.Info("a request of Docker is answered", "request", r.URL.Path, "asked", fmt.Sprintf("%+v", ask), "reply", fmt.Sprintf("%+v", reply))
	}
	answer(w, reply, err)
}

func answer(w http.ResponseWriter, reply any, err error) {
	if err != nil {
		reply = refusal{"ipamd: " + err.Error()}
	}
	_ = json.NewEncoder(w).Encode(reply) // who hung up asks again
}

type nothing struct{}

// call is one call of ipamd, tried again while it is not there or says that waiting helps.
func call[T any](ctx context.Context, try func(context.Context) (*T, error)) (out *T, err error) {
	err = client.Retry(ctx, func(ctx context.Context) error {
		out, err = try(ctx)
		return err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w (was tried for %v)", err, Within)
	}
	return out, err
}
