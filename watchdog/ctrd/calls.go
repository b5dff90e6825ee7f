package ctrd

import (
	"context"
	"errors"
	"net"
	"sync"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// calls are what is asked of containerd by itself, beside what is followed: look-ups of a
// container, and what is done with its task. They are safe for concurrent use.
type calls struct {
	cfg    Config
	life   context.Context // ends with Close
	end    context.CancelFunc
	shared conn
}

// A conn is the one connection that look-ups share, beside the one that is
// followed, so that none of them pays for a connection.
type conn struct {
	mu     sync.Mutex
	client *containerd.Client
}

// asked calls fn with the shared client; what it asks ends at Close.
func (k *calls) asked(ctx context.Context, fn func(context.Context, *containerd.Client) error) error {
	ctx, cancel := k.until(ctx)
	defer cancel()
	c, err := k.dialled()
	if err != nil {
		return err
	}
	return k.inWords(fn(ctx, c))
}

// dialled returns the shared client. One whose connection failed is replaced:
// gRPC would refuse calls on it for a back-off of its own, while containerd may
// be back already.
func (k *calls) dialled() (*containerd.Client, error) {
	k.shared.mu.Lock()
	defer k.shared.mu.Unlock()
	if k.life.Err() != nil {
		return nil, errors.New("the witness is closed")
	}
	if c := k.shared.client; c != nil && refuses(c) {
		k.shared.client = nil
		_ = c.Close() // what was under way on it has failed already
	}
	if k.shared.client == nil {
		c, err := k.open()
		if err != nil {
			return nil, err
		}
		k.shared.client = c
	}
	return k.shared.client, nil
}

func refuses(c *containerd.Client) bool {
	conn, ok := c.Conn().(interface{ GetState() connectivity.State })
	return ok && conn.GetState() == connectivity.TransientFailure
}

// hangUp closes the shared client.
func (k *calls) hangUp() error {
	k.shared.mu.Lock()
	defer k.shared.mu.Unlock()
	c := k.shared.client
	if c == nil {
		return nil
	}
	k.shared.client = nil
	return c.Close()
}

// until returns ctx with an end at Close.
func (k *calls) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(k.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// open makes a client. Every attempt takes a new one: a gRPC connection that
// failed refuses calls for a back-off of its own, longer than ours. The
// client's own dialer would also wait for a socket that is missing, where we
// want to know that containerd is down.
func (k *calls) open() (*containerd.Client, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", k.cfg.Address)
	}
	return containerd.New(k.cfg.Address, containerd.WithDialOpts([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a unix socket
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: k.cfg.Timeout}),
		grpc.WithContextDialer(dial),
	}))
}

// ask bounds one call, in a containerd namespace unless that is "".
func (k *calls) ask(ctx context.Context, namespace string) (context.Context, context.CancelFunc) {
	if namespace != "" {
		ctx = namespaces.WithNamespace(ctx, namespace)
	}
	return context.WithTimeout(ctx, k.cfg.Timeout)
}
