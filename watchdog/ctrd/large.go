package ctrd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
)

// containerd sends no message above 16 MiB, and updates can make a record larger than
// that: a list that holds one fails as a whole. Which record it is, and what its labels
// say, is still to be learnt: a filter that picks it fails, and one that does not
// returns. So its words are spelled, some eight questions a letter, once; afterwards
// lists leave it out by its id.

// mostSpelled bounds a word in bytes: an id has 76 at most, and a label that is longer
// is not known. It keeps a tenant's label from occupying the reading of all.
const mostSpelled = 128

// records reads containers' records, those too that containerd cannot send.
type records struct {
	calls

	mu    sync.Mutex
	large large // under mu
}

// large are the records that containerd cannot send, by container.
type large map[container]spelled

// A spelled record has labels as far as [Config.own] names them. Its age is not known:
// it counts as made when it was met, so that nothing takes it for old.
type spelled struct {
	met    time.Time
	labels map[string]string
}

// around lists records of a namespace beside those that are too large, which are
// returned with the labels that matter and marked.
func (k *records) around(ctx context.Context, conn grpc.ClientConnInterface, ns string, filters []string) (list []containers.Container, err error) {
	for {
		ids := k.largeIn(ns)
		call, cancel := k.ask(ctx, ns)
		list, err = k.stream(call, conn, each(filters, without(ids)))
		cancel()
		if err == nil {
			return k.withLarge(ctx, conn, ns, filters, ids, list)
		}
		if !errdefs.IsResourceExhausted(err) {
			return nil, err
		}
		id, found, spellErr := k.spell(ctx, conn, ns, without(ids), "id")
		if spellErr != nil || !found {
			return nil, err // for another reason
		}
		k.mu.Lock()
		k.large[container{Namespace: ns, ID: id}] = spelled{met: time.Now()}
		k.mu.Unlock()
	}
}

// withLarge adds the records that are known to be too large, as far as the filters
// pick them. One that is not so any more is added as it is.
func (k *records) withLarge(ctx context.Context, conn grpc.ClientConnInterface, ns string, filters, ids []string, list []containers.Container) ([]containers.Container, error) {
	for _, id := range ids {
		its := []string{matches("id", id)}
		call, cancel := k.ask(ctx, ns)
		small, err := k.stream(call, conn, its)
		cancel()
		if err == nil { // it is smaller now, or gone
			k.mu.Lock()
			delete(k.large, container{Namespace: ns, ID: id})
			k.mu.Unlock()
			if len(small) > 0 && len(filters) > 0 {
				call, cancel := k.ask(ctx, ns)
				small, err = k.stream(call, conn, each(filters, its))
				cancel()
			}
		}
		if err == nil {
			list = append(list, small...)
			continue
		}
		if !errdefs.IsResourceExhausted(err) {
			return nil, err
		}
		if len(filters) > 0 {
			if picked, err := k.tooLarge(ctx, conn, ns, each(filters, its)...); err != nil {
				return nil, err
			} else if !picked {
				continue
			}
		}
		one, err := k.readLarge(ctx, conn, container{Namespace: ns, ID: id})
		if err != nil {
			return nil, err
		}
		list = append(list, containers.Container{ID: id, Labels: one.labels, CreatedAt: one.met, UpdatedAt: one.met})
	}
	return list, nil
}

// readLarge spells the labels that matter, unless they are as they were. What is not
// spelled within the time of one call is left to the next reading.
func (k *records) readLarge(ctx context.Context, conn grpc.ClientConnInterface, at container) (spelled, error) {
	k.mu.Lock()
	one, has := k.large[at]
	k.mu.Unlock()
	if !has { // another reading found it smaller in between
		one.met = time.Now()
	}
	own, cancel := context.WithTimeout(ctx, k.cfg.Timeout)
	defer cancel()
	now := make(map[string]string)
	for _, name := range []string{k.cfg.OwnerLabel, k.cfg.LeaseLabel, k.cfg.UIDLabel, k.cfg.AddressLabel} {
		if name == "" {
			continue
		}
		value, found, err := k.labelOfLarge(own, conn, at, name, one.labels)
		switch {
		case err != nil && own.Err() != nil && ctx.Err() == nil:
			continue
		case err != nil:
			return spelled{}, err
		case found:
			now[name] = value
		}
	}
	one.labels = now
	k.mu.Lock()
	k.large[at] = one
	k.mu.Unlock()
	return one, nil
}

func (k *records) labelOfLarge(ctx context.Context, conn grpc.ClientConnInterface, at container, name string, known map[string]string) (string, bool, error) {
	field, its := fmt.Sprintf("labels.%q", name), matches("id", at.ID)
	if was, has := known[name]; has {
		if same, err := k.tooLarge(ctx, conn, at.Namespace, its+","+matches(field, was)); err != nil || same {
			return was, same, err
		}
	}
	return k.spell(ctx, conn, at.Namespace, []string{its}, field)
}

// spell finds a value of a field among the records that are too large and that all of
// the conditions pick; not found when none has it, or only in other words than
// printable ASCII.
func (k *records) spell(ctx context.Context, conn grpc.ClientConnInterface, ns string, conditions []string, field string) (word string, found bool, err error) {
	has := func(pattern string) (bool, error) {
		return k.tooLarge(ctx, conn, ns, strings.Join(append(slices.Clone(conditions), fmt.Sprintf("%s~=%q", field, pattern)), ","))
	}
	begins := func(lo, hi byte) (bool, error) { return has(fmt.Sprintf(`^%s[\x%02x-\x%02x]`, quoted(word), lo, hi)) }
	for len(word) < mostSpelled {
		lo, hi := byte(' '), byte('~')
		if more, err := begins(lo, hi); err != nil {
			return "", false, err
		} else if !more {
			break
		}
		for lo < hi {
			mid := lo + (hi-lo)/2
			low, err := begins(lo, mid)
			if err != nil {
				return "", false, err
			}
			if low {
				hi = mid
			} else {
				lo = mid + 1
			}
		}
		word += string(lo)
	}
	found, err = has("^" + quoted(word) + "$")
	return word, found, err
}

// tooLarge reports that a record which any of the filters picks is too large.
func (k *records) tooLarge(ctx context.Context, conn grpc.ClientConnInterface, ns string, filters ...string) (bool, error) {
	call, cancel := k.ask(ctx, ns)
	defer cancel()
	_, err := k.stream(call, conn, filters)
	if errdefs.IsResourceExhausted(err) {
		return true, nil
	}
	return false, err
}

func (k *records) isLarge(at container) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, is := k.large[at]
	return is
}

func (k *records) largeIn(ns string) (ids []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for at := range k.large {
		if at.Namespace == ns {
			ids = append(ids, at.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// each adds conditions to each of the filters, of which any picks a record.
func each(filters, conditions []string) (out []string) {
	if len(conditions) == 0 {
		return filters
	}
	all := strings.Join(conditions, ",")
	if len(filters) == 0 {
		return []string{all}
	}
	for _, f := range filters {
		out = append(out, f+","+all)
	}
	return out
}

func without(ids []string) (conditions []string) {
	for _, id := range ids {
		conditions = append(conditions, fmt.Sprintf("id!=%q", id))
	}
	return conditions
}

func matches(field, value string) string { return fmt.Sprintf("%s~=%q", field, "^"+quoted(value)+"$") }

// quoted is a word as a regular expression, whatever it holds.
func quoted(word string) string {
	var b strings.Builder
	for _, c := range []byte(word) {
		fmt.Fprintf(&b, `\x%02x`, c)
	}
	return b.String()
}
