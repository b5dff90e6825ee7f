package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/ipamd/ipamd/internal/ctrdtest"
)

// A ctrd is a containerd of the run's own.
//
// It is started by package ctrdtest, which speaks to a test; here it speaks to
// a ctrd, which turns what would end a test into an error of [ctrd.do].
type ctrd struct {
	testing.TB // nil: the rest of it is not for us
	*ctrdtest.Daemon
	ends []func()
	errs []error
}

// A refusal is what would have ended a test.
type refusal struct{ error }

func (r *ctrd) Helper()                 {}
func (r *ctrd) Cleanup(end func())      { r.ends = append(r.ends, end) }
func (r *ctrd) Failed() bool            { return len(r.errs) > 0 }
func (r *ctrd) Fatal(args ...any)       { panic(refusal{errors.New(fmt.Sprint(args...))}) }
func (r *ctrd) Skip(args ...any)        { r.Fatal(args...) }
func (r *ctrd) Logf(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) }
func (r *ctrd) Fatalf(f string, a ...any) {
	panic(refusal{fmt.Errorf(f, a...)})
}
func (r *ctrd) Errorf(f string, a ...any) { r.errs = append(r.errs, fmt.Errorf(f, a...)) }

// do runs fn and returns what would have ended a test in it.
func (r *ctrd) do(fn func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case refusal:
			err = p.error
			r.errs = append(r.errs, err)
		default:
			panic(p)
		}
	}()
	fn()
	return nil
}

// startRuntime starts the containerd 2.x that scripts/containerd2 builds, or
// else Debian's, and says which.
func startRuntime(ctx context.Context) (r *ctrd, err error) {
	for _, version := range []ctrdtest.Version{ctrdtest.V2, ctrdtest.Debian} {
		r = new(ctrd)
		if err = r.do(func() { r.Daemon = ctrdtest.Start(r, version) }); err == nil {
			break
		}
		err = errors.Join(err, r.close())
		fmt.Fprintf(os.Stderr, "no containerd (%s): %v\n", version, err)
	}
	if err != nil {
		return nil, err
	}
	v, err := r.Client().Version(ctx)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	fmt.Fprintf(os.Stdout, "containerd %s (%s)\n\n", v.Version, r.Version)
	return r, nil
}

// close ends containerd with everything in it. What went wrong before was told
// already.
func (r *ctrd) close() error {
	r.errs = nil
	for _, end := range slices.Backward(r.ends) {
		_ = r.do(end) // it is among r.errs
	}
	return errors.Join(r.errs...)
}

// inDefault names the containerd namespace of all containers.
func inDefault(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, namespaces.Default)
}
