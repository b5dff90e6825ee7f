package ctrd

import (
	"context"
	"errors"
	"fmt"
	"io"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
)

// containers lists the records of a namespace that any of the filters picks, all
// without a filter. They come one by one, and of each is kept what [Config.own] names:
// a tenant may put megabytes into other labels, and a spec is larger than all of ours.
func (k *records) containers(ctx context.Context, c *containerd.Client, ns string, filters ...string) (list []containers.Container, err error) {
	conn, can := c.Conn().(grpc.ClientConnInterface)
	if can {
		list, err = k.around(ctx, conn, ns, filters)
	}
	if !can || errdefs.IsNotImplemented(err) { // older than what is supported, or a proxy
		call, cancel := k.ask(ctx, ns)
		defer cancel()
		list, err = c.ContainerService().List(call, filters...)
		for i, one := range list {
			list[i] = containers.Container{ID: one.ID, Labels: k.cfg.own(one.Labels), CreatedAt: one.CreatedAt, UpdatedAt: one.UpdatedAt}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list containers of namespace %s: %w", ns, err)
	}
	return list, nil
}

func (k *records) stream(ctx context.Context, conn grpc.ClientConnInterface, filters []string) (list []containers.Container, err error) {
	records, err := containersapi.NewContainersClient(conn).ListStream(ctx, &containersapi.ListContainersRequest{Filters: filters})
	if err != nil {
		return nil, errgrpc.ToNative(err)
	}
	for {
		m, err := records.Recv()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, errgrpc.ToNative(err)
		}
		one := m.GetContainer()
		list = append(list, containers.Container{ID: one.GetID(), Labels: k.cfg.own(one.GetLabels()),
			CreatedAt: one.GetCreatedAt().AsTime(), UpdatedAt: one.GetUpdatedAt().AsTime()})
	}
}

// own returns those of a container's labels that matter here: its sandbox, its
// incarnation and its lease, and as many addresses as are read and one more.
func (c Config) own(labels map[string]string) map[string]string {
	names := c.addressLabels(labels)
	kept := make(map[string]string)
	for _, name := range append(names[:min(len(names), mostLabels+1)], c.OwnerLabel, c.LeaseLabel, c.UIDLabel) {
		if value, has := labels[name]; has && name != "" {
			kept[name] = value
		}
	}
	return kept
}
