package ctrd

import (
	"context"
	"fmt"
	"slices"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"github.com/ipamd/ipamd/watchdog"
)

// List reads the record of every container. No shim is asked.
func (w *Witness) List(ctx context.Context) ([]watchdog.Record, error) { return w.list(ctx, nil) }

// Tied reads the record of every container that a tie holds. containerd picks
// them, and looks at every record for that: what is saved is the sending of a
// thousand specs. No shim is asked.
func (w *Witness) Tied(ctx context.Context, ties []watchdog.Tie) ([]watchdog.Record, error) {
	filters, ok := w.cfg.tied(ties)
	if !ok {
		return w.List(ctx)
	}
	found, err := w.list(ctx, filters)
	if errdefs.IsInvalidArgument(err) { // it does not understand a filter
		return w.List(ctx)
	}
	return found, err
}

// mostFilters bounds how many questions containerd asks of each record. Beyond
// that the whole list is not dearer.
const mostFilters = 64

// tied returns the filters that pick what ties hold; not ok when that cannot
// be said in containerd's words, or not briefly. Several filters mean any.
func (c Config) tied(ties []watchdog.Tie) (filters []string, ok bool) {
	field := func(name, value string) {
		if f := fmt.Sprintf("%s==%q", name, value); value != "" && !slices.Contains(filters, f) {
			filters = append(filters, f)
		}
	}
	for _, t := range ties {
		for _, value := range append([]string{t.LeaseID}, append(t.Owners, t.IDs...)...) {
			if !plain(value) {
				return nil, false
			}
		}
		field(fmt.Sprintf("labels.%q", c.LeaseLabel), t.LeaseID)
		for _, owner := range t.Owners {
			field(fmt.Sprintf("labels.%q", c.OwnerLabel), owner)
		}
		for _, id := range t.IDs {
			field("id", id)
		}
	}
	return filters, len(filters) > 0 && len(filters) <= mostFilters
}

// plain reports that a value is the same in containerd's quotes as in Go's.
func plain(value string) bool {
	for _, r := range value {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return false
		}
	}
	return true
}

// list reads the records that any of the filters picks; all without a filter.
func (w *Witness) list(ctx context.Context, filters []string) (all []watchdog.Record, err error) {
	err = w.asked(ctx, func(ctx context.Context, c *containerd.Client) error {
		names, err := w.namespaces(ctx, c)
		if err != nil {
			return err
		}
		for _, ns := range names {
			list, err := w.containers(ctx, c, ns, filters...)
			if err != nil {
				return err
			}
			for _, one := range list {
				found := watchdog.Record{
					Container: watchdog.Container{Namespace: ns, ID: one.ID},
					Sandbox:   one.Labels[w.cfg.OwnerLabel], LeaseID: one.Labels[w.cfg.LeaseLabel], Made: one.CreatedAt,
				}
				if w.cfg.UIDLabel != "" {
					found.UID = one.Labels[w.cfg.UIDLabel]
				}
				all = append(all, found)
			}
		}
		return w.believed(ctx, c) // that no more are there
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}
