package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"
)

// A wake-up on a one-slot channel is broadcast.Wake: its slot, and that one which waits is as
// good as several, are explained there.
func TestAWakeUpIsBroadcastWake(t *testing.T) {
	for path, p := range list(t) {
		if name, our := ours(path); !our || name == "internal/broadcast" {
			continue
		}
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range wakes(f) {
				t.Errorf("%s writes broadcast.Wake by hand", fset.Position(at))
			}
		}
	}
}

// wakes returns where a select sends an empty struct or goes on.
func wakes(f *ast.File) (at []token.Pos) {
	ast.Inspect(f, func(n ast.Node) bool {
		s, is := n.(*ast.SelectStmt)
		if !is || len(s.Body.List) != 2 {
			return true
		}
		sends, goesOn := false, false
		for _, c := range s.Body.List {
			c := c.(*ast.CommClause)
			send, is := c.Comm.(*ast.SendStmt)
			if goesOn = goesOn || c.Comm == nil && len(c.Body) == 0; !is || len(c.Body) > 0 {
				continue
			}
			value, is := send.Value.(*ast.CompositeLit)
			if !is {
				continue
			}
			empty, is := value.Type.(*ast.StructType)
			sends = sends || is && empty.Fields.NumFields() == 0
		}
		if sends && goesOn {
			at = append(at, s.Pos())
		}
		return true
	})
	return at
}

func TestAWakeUpByHandIsFound(t *testing.T) {
	for body, want := range map[string]int{
		"select { case slot <- struct{}{}: default: }":              1,
		"select { default: case k.slot <- struct{}{}: }":            1,
		"select { case slot <- struct{}{}: case <-done: }":          0,
		"select { case slot <- 1: default: }":                       0,
		"select { case slot <- struct{}{}: return; default: }":      0,
		"select { case slot <- struct{}{}: default: return }":       0,
		"for { select { case slot <- struct{}{}: default: } }":      1,
		"select { case <-slot: default: }; broadcast.Wake(another)": 0,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "p.go", "package p\nfunc f() { "+body+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if found := wakes(f); len(found) != want {
			t.Errorf("%s: found %d, want %d", body, len(found), want)
		}
	}
}
