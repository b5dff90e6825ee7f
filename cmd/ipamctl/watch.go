package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/term"
)

func watchCommand(c *ctl) *cobra.Command {
	since, kinds := int64(-1), []string(nil)
	known := []string{string(api.KindLease), string(api.KindAttempt), string(api.KindPool), string(api.KindBook)}
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Changes of the book, as they come",
		Long: `Prints a line for each change of the book from now on, or from --since, until
Ctrl-C. When the daemon restarts, the stream goes on where it was; when the
history does not reach back so far, it says so and goes on from the present.
-o json prints the events, one a line; -q prints the lease ids.`,
		Example: `  ipamctl watch
  ipamctl watch --since 812 --kinds lease -o json
  ipamctl watch --kinds pool,book`,
		Args: nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.format.value == "yaml" {
				return usageError{message: "watch prints lines", hint: "for a program: ipamctl watch -o json"}
			}
			filter := client.WatchFilter{}
			for _, k := range kinds {
				if !slices.Contains(known, k) {
					return usageError{message: "--kinds " + term.Word(k) + " is no kind", hint: "known are " + strings.Join(known, ", ")}
				}
				filter.Kinds = append(filter.Kinds, api.Kind(k))
			}
			ctx, cancel, ipamd := c.call(cmd, 0)
			now, err := ipamd.Status(ctx)
			cancel()
			if err != nil {
				return err
			}
			if filter.Epoch, filter.Since = now.Epoch, now.Revision; since >= 0 {
				filter.Since = since
			}
			for u := range ipamd.Watch(cmd.Context(), filter) {
				if err := c.follow(u); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().Int64Var(&since, "since", -1, "begin behind this `revision`")
	cmd.Flags().StringSliceVar(&kinds, "kinds", nil, "only changes of these `kinds`: "+strings.Join(known, ", ")+" (lease and attempt unless given)")
	return cmd
}

// follow prints one step.
func (c *ctl) follow(u client.Update) error {
	switch {
	case final(u.Err):
		return u.Err
	case u.Err != nil:
		c.note("the stream was interrupted, and is resumed: %v", u.Err)
		return nil
	case u.List != nil:
		c.note("what came before revision %d is not kept, or the book is another one; from there on:", u.List.Revision+1)
		return nil
	case !c.forPeople():
		return c.json(u.Event)
	case u.Event.Change == nil:
		return nil
	case c.quiet:
		if u.Event.Change.LeaseID == "" {
			return nil
		}
		return c.line(term.Sentence(u.Event.Change.LeaseID))
	}
	ch, p := *u.Event.Change, c.page(0)
	if u.Event.Kind == api.KindPool {
		p.Line("%s  %d  pool %s  %s", ch.At.In(c.now().Location()).Format("15:04:05.000"), ch.Revision, term.Word(ch.Pool), because(ch)+poolNow(ch.Described))
		_, err := p.WriteTo(c.out)
		return err
	}
	p.Line("%s  %d  %-15s  %s → %s  %s  %s", ch.At.In(c.now().Location()).Format("15:04:05.000"), ch.Revision,
		cmp.Or(place(ch.Address, ch.PrefixLength), "-"), p.state(ch.From), p.state(ch.To), term.Maybe(cmp.Or(ch.Sandbox, ch.UID)), because(ch))
	_, err := p.WriteTo(c.out)
	return err
}

// poolNow is what a change makes of a pool.
func poolNow(d *api.Described) string {
	if d == nil || d.State == api.PoolRemoved {
		return ""
	}
	return fmt.Sprintf(": %s, %s, generation %d", term.Word(d.Prefix), term.Word(string(d.State)), d.Generation)
}

// final reports whether the daemon refused, and will refuse again.
func final(err error) bool {
	refusal := new(api.Error)
	return errors.As(err, &refusal) && !refusal.Retryable
}

func (c *ctl) line(text string) error {
	if _, err := fmt.Fprintln(c.out, text); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}
