package ctrd_test

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/watchdog/ctrd"
)

// containerd takes up a subscription after it accepted it, and says nothing
// then. A reading in between would miss for good what happens between: so the
// reading waits until the stream is proven. The way to containerd is slow here
// for subscriptions only; the containerd is a real one.
func TestReadingWaitsForTheStream(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		const late = 300 * time.Millisecond
		slow := slowSubscriptions(t, d.Address, late)
		x := look(t, d, func(c *ctrd.Config) { c.Address = slow })
		began := time.Now()
		x.run()
		x.eventually("the first reading", x.speaks)
		if took := time.Since(began); took < late {
			t.Errorf("read after %v, when containerd did not yet report changes", took)
		}
		x.container("app", "10.8.64.2")
		x.eventually("what came next", func() bool { return x.by("10.8.64.2") != "" })
	})
}

// slowSubscriptions passes calls on to containerd byte by byte, those to
// Subscribe late. It returns the path of its socket.
func slowSubscriptions(t *testing.T, to string, late time.Duration) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(to), "slow.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix://"+to,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(bytesCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodec(bytesCodec{}), grpc.UnknownServiceHandler(
		func(_ any, down grpc.ServerStream) error {
			method, _ := grpc.MethodFromServerStream(down)
			if strings.HasSuffix(method, "/Subscribe") {
				select {
				case <-time.After(late):
				case <-down.Context().Done():
					return nil
				}
			}
			return passOn(conn, method, down)
		}))
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); conn.Close() })
	return path
}

// passOn carries one call with one request, which all that the witness makes
// are.
func passOn(conn *grpc.ClientConn, method string, down grpc.ServerStream) error {
	in, _ := metadata.FromIncomingContext(down.Context())
	ctx := metadata.NewOutgoingContext(down.Context(), in)
	up, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}
	var frame []byte
	if err := down.RecvMsg(&frame); err != nil {
		return err
	}
	if err := up.SendMsg(&frame); err != nil {
		return err
	}
	if err := up.CloseSend(); err != nil {
		return err
	}
	for {
		if err := up.RecvMsg(&frame); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := down.SendMsg(&frame); err != nil {
			return err
		}
	}
}

// bytesCodec leaves messages as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), b...)
	return nil
}
func (bytesCodec) Name() string { return "proto" }
