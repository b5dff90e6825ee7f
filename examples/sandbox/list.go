package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// A Sandbox is one line of the list.
type Sandbox struct {
	Name, Address, Lease string
	Task                 string // as containerd says it, or "none"
}

// List lists the sandboxes by name, from containerd alone: it works while
// ipamd is down.
func (r *Runtime) List(ctx context.Context) ([]Sandbox, error) {
	ctx, cancel := r.within(ctx)
	defer cancel()
	all, err := r.ctrd.Containers(ctx, `labels."`+labelOwner+`"`)
	if err != nil {
		return nil, fmt.Errorf("list the containers: %w", err)
	}
	var list []Sandbox
	for _, c := range all {
		labels, err := c.Labels(ctx)
		if errdefs.IsNotFound(err) {
			continue // removed since
		}
		if err != nil {
			return nil, fmt.Errorf("read the labels of %s: %w", c.ID(), err)
		}
		s := Sandbox{Name: c.ID(), Address: labels[labelAddress], Lease: labels[labelLease], Task: "none"}
		task, err := c.Task(ctx, nil)
		if err == nil {
			status, unread := task.Status(ctx)
			s.Task, err = string(status.Status), unread
		}
		if err != nil && !errdefs.IsNotFound(err) {
			return nil, fmt.Errorf("read the task of %s: %w", c.ID(), err)
		}
		s.Task = cmp.Or(s.Task, "none")
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Sandbox) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}
