package storm_test

import (
	"context"
	"fmt"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/protobuf/types/known/anypb"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

const (
	ownerLabel   = "runtime.computer/entity-id"
	addressLabel = "runtime.computer/ip"
)

const (
	recordsOf  = "hostile-" // how the records of hostile tenants are named
	recordMade = "record of a hostile tenant"
)

// recorded has a record with such labels until ctx ends. A containerd that dies
// meanwhile is asked until it answers.
func (h *hostile) recorded(ctx context.Context, labels map[string]string, more ...containerd.NewContainerOpts) error {
	id := fmt.Sprint(recordsOf, h.r.Uint64())
	asking, cancel := context.WithTimeout(namespaces.WithNamespace(h.ctx, namespaces.Default), callTime)
	defer cancel()
	_, err := h.ctrd.NewContainer(asking, id, append(more, containerd.WithContainerLabels(labels),
		containerd.WithRuntime("io.containerd.runc.v2", nil), containerd.WithSpec(&specs.Spec{}))...)
	if err == nil {
		h.rec.counted(recordMade)
	} else {
		h.rec.last("hostile tenant", err)
	}
	<-ctx.Done()
	a := &actor{world: h.world, r: h.r}
	a.remove(&sandbox{container: id})
	return nil
}

// anothersLabels names an owner that has nothing to do with it, which may be a sandbox
// that lives, and an address that another has, or none.
func (h *hostile) anothersLabels(ctx context.Context) error {
	labels := map[string]string{ownerLabel: "db-primary", addressLabel: anyHost(h.r).String()}
	if l, _, ok := h.victim(); ok && h.r.IntN(2) == 0 {
		labels[addressLabel] = l.addr.String()
	}
	switch l, _, ok := h.victim(); {
	case !ok:
	case h.r.IntN(3) == 0:
		labels[ownerLabel] = l.uid
	case h.r.IntN(2) == 0: // with the very address of its victim, or none
		labels[ownerLabel], labels[addressLabel] = l.uid, l.addr.String()
		if h.r.IntN(2) == 0 {
			delete(labels, addressLabel)
		}
	}
	return h.recorded(ctx, labels)
}

func (h *hostile) unreadable(ctx context.Context) error {
	return h.recorded(ctx, map[string]string{ownerLabel: "hostile", addressLabel: "x"})
}

func (h *hostile) manyAddresses(ctx context.Context) error {
	labels := map[string]string{ownerLabel: "hostile"}
	for i := range 230 {
		labels[fmt.Sprint(addressLabel, i)] = anyHost(h.r).String()
	}
	return h.recorded(ctx, labels)
}

// largeRecord has megabytes of labels of its own, and as much of extensions.
func (h *hostile) largeRecord(ctx context.Context) error {
	labels := make(map[string]string)
	for i := range 250 + h.r.IntN(750) { // 1 to 4 MB
		labels[fmt.Sprint("example.com/", i)] = strings.Repeat("x", 4000)
	}
	blob := &anypb.Any{TypeUrl: "tenant", Value: make([]byte, 1+h.r.IntN(4<<20))}
	return h.recorded(ctx, labels, containerd.WithContainerExtension("tenant", blob))
}
