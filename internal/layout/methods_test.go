package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"
)

// methodsMost is how many methods a type may have without a reason.
const methodsMost = 30

// large has the types with more, each with its reason, and the most that it may have. One that
// shrinks has its number here lowered; one that has to grow is looked at: a part of it may be a
// type of its own.
var large = map[string]struct {
	most int
	why  string
}{
	"client.Client":            {48, "one for each verb of the socket"},
	"bridge/rtnl.Socket":       {46, "one for each message of the kernel"},
	"reconciler.view":          {46, "rows of one table of decisions, over readings that none of them changes"},
	"cmd/ipamctl.page":         {58, "it draws: one for each part of an answer, in the file of its verb"},
	"cmd/ipamctl.ctl":          {38, "one for each way in which a verb asks, answers or completes"},
	"bridge.Bridge":            {75, "one memory of the kernel's news under one lock; what asks the kernel without it is lookups"},
	"bridge.Group":             {45, "what is asked of one bridge, asked of several"},
	"bridge.namespaces":        {39, "one witness: its ports, the namespaces behind them, and the sockets into these are one state"},
	"enforce.Keeper":           {34, "one table of the kernel under one lock; what it is to be, what it counted and why it does not hold are parts of their own"},
	"watchdog.Watchdog":        {51, "one set of releases under way; the attempts' own state is apart"},
	"wake.Flights":             {34, "one set of flights: how each begins, goes on and ends"},
	"warm.Keeper":              {37, "one set of slots and of works on them"},
	"internal/ctrdtest.Daemon": {44, "what tests do with a containerd, one for each act"},
}

func TestTypesDoNotGrowUnseen(t *testing.T) {
	found := map[string]int{}
	for path, p := range list(t) {
		room, our := ours(path)
		if !our {
			continue
		}
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, of := range receivers(f) {
				found[room+"."+of]++
			}
		}
	}
	for name, n := range found {
		switch l, is := large[name]; {
		case !is && n > methodsMost:
			t.Errorf("%s has %d methods, and may have %d: divide it, or say why not", name, n, methodsMost)
		case is && n > l.most:
			t.Errorf("%s has %d methods, and may have %d (%s)", name, n, l.most, l.why)
		case is && n < l.most && n > methodsMost:
			t.Errorf("%s has %d methods by now: lower its number from %d", name, n, l.most)
		case is && n <= methodsMost:
			t.Errorf("%s has %d methods: it needs no exception any more", name, n)
		}
	}
	for name := range large {
		if found[name] == 0 {
			t.Errorf("%s has an exception, and is not there", name)
		}
	}
}

// receivers returns the type of each method of a file.
func receivers(f *ast.File) (all []string) {
	for _, d := range f.Decls {
		fn, is := d.(*ast.FuncDecl)
		if !is || fn.Recv == nil {
			continue
		}
		of := fn.Recv.List[0].Type
		if p, is := of.(*ast.StarExpr); is {
			of = p.X
		}
		switch generic := of.(type) {
		case *ast.IndexExpr:
			of = generic.X
		case *ast.IndexListExpr:
			of = generic.X
		}
		all = append(all, of.(*ast.Ident).Name)
	}
	return all
}

func TestReceiversAreFound(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", `package p
func (t T) a() {}
func (t *T) b() {}
func (T) c() {}
func (g *T[A]) d() {}
func (g T[A, B]) e() {}
func f() {}
var g = func(t T) {}
`, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := receivers(f); len(got) != 5 {
		t.Errorf("found %v", got)
	}
}
