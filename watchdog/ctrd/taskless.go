package ctrd

import (
	"context"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"golang.org/x/sync/errgroup"
)

// A list of tasks leaves out whom containerd could not ask: a shim that is frozen
// looks there like a container without a task. So those that it leaves out are asked
// for by their ids, once: that one has no task stands until an event speaks of it.

const (
	// askMost bounds how long a whole reading waits for what its list of tasks leaves
	// out, all together. Whom it could not ask by then may have a task.
	askMost = time.Second
	// askAbreast is how many of them are asked at once.
	askAbreast = 16
)

// taskless are the containers that answered to have no task, by when their records were
// made. It is worth something only while events are followed.
type taskless map[container]time.Time

// note takes down what one container answered.
func (t taskless) note(at container, made time.Time, answer task) {
	if answer == (task{}) {
		t[at] = made
	} else {
		delete(t, at)
	}
}

// leftOut asks for the tasks of those containers of a namespace that its list of tasks
// leaves out, and takes the time for it out of what is left; the caller holds posting.
func (w *Witness) leftOut(ctx context.Context, c *containerd.Client, ns string, list []containers.Container,
	listed func(id string) (task, bool), left *time.Duration) func(id string) task {
	var ask []containers.Container
	answers := make(map[string]task)
	for _, one := range list {
		t, known := listed(one.ID)
		made, before := w.taskless[container{Namespace: ns, ID: one.ID}]
		switch {
		case known:
			answers[one.ID] = t
		case before && made.Equal(one.CreatedAt):
			answers[one.ID] = task{}
		default:
			ask = append(ask, one)
		}
	}
	began := time.Now()
	defer func() { *left -= time.Since(began) }()
	ctx, cancel := context.WithTimeout(ctx, *left)
	defer cancel()
	got := make([]task, len(ask))
	var g errgroup.Group // waited for below
	g.SetLimit(askAbreast)
	for i, one := range ask {
		g.Go(func() error {
			got[i] = w.task(ctx, c, container{Namespace: ns, ID: one.ID})
			return nil
		})
	}
	_ = g.Wait() // none of them returns one
	for i, one := range ask {
		answers[one.ID] = got[i]
	}
	return func(id string) task { return answers[id] }
}
