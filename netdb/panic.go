package netdb

import (
	"context"
	"fmt"
	"runtime/debug"
)

// A panicked error carries a panic out of a commit: a request's to its own
// caller, because the one who committed for it has nothing to do with it.
type panicked struct{ value any }

func (p panicked) Error() string { return fmt.Sprint(p.value) }

func answer(err error) error {
	if p, ok := err.(panicked); ok {
		panic(p.value)
	}
	return err
}

// safely runs fn and returns its panic as an error, with the stack.
func safely(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked{fmt.Sprintf("%v\n\n%s", p, debug.Stack())}
		}
	}()
	return fn()
}

// answerAll answers the requests of a batch that have no answer yet.
func answerAll(batch []*op, err error) {
	for _, o := range batch {
		select {
		case o.done <- err:
		default:
		}
	}
}

// readAnew reads the book into a new index behind a durable commit that could
// not be published: half of it may be in the old one. Where that is not possible
// the process ends, by a panic that nobody recovers: an address could be given
// twice by an index that does not know the newest leases.
func (b *Book) readAnew(why error) {
	err := safely(func() error {
		b.meet("read anew")
		return b.load(context.Background())
	})
	if err != nil {
		go panic(fmt.Sprintf("the book cannot be read behind a commit: %v\n\n%v", err, why))
		select {}
	}
	b.signal.send(^stateSet(0))
}

// meet is a point that a test may let a commit fail at.
func (b *Book) meet(point string) {
	if b.opts.meet != nil {
		b.opts.meet(point)
	}
}
