package config

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/ipamd/ipamd/internal/nearest"
)

// A setting is one key of a file and where it stands.
type setting struct {
	name         string // "pool.prefix", with no index
	line, column int
	kind         unstable.Kind // of its value; Table and ArrayTable for headers
}

// An outline has a file's keys by their full name with the index of an outer
// list, "pool[1].prefix". A key in an inner list goes by the first that has it.
type outline map[string]setting

// outlineOf reads where everything stands. It returns what it could read; a
// what is wrong with a file that is no TOML is the decoder's to report.
func outlineOf(doc []byte) outline {
	o := make(outline)
	count := make(map[string]int) // of each list of tables so far
	var parser unstable.Parser
	parser.Reset(doc)
	table := ""
	for parser.NextExpression() {
		e := parser.Expression()
		if e.Kind == unstable.KeyValue {
			o.add(&parser, table, e)
			continue
		}
		if e.Kind == unstable.ArrayTable {
			count[keyOf(e)]++
		}
		first, rest, nested := strings.Cut(keyOf(e), ".")
		full := first
		if n := count[first]; n > 0 {
			full = fmt.Sprintf("%s[%d]", first, n-1)
		}
		if nested {
			full += "." + rest
		}
		o.put(&parser, full, e)
		table = full + "."
	}
	return o
}

func keyOf(n *unstable.Node) string {
	var parts []string
	for it := n.Key(); it.Next(); {
		parts = append(parts, string(it.Node().Data))
	}
	return strings.Join(parts, ".")
}

func (o outline) add(p *unstable.Parser, table string, n *unstable.Node) {
	full := table + keyOf(n)
	o.put(p, full, n)
	switch value := n.Value(); value.Kind {
	case unstable.InlineTable:
		o.children(p, full+".", value)
	case unstable.Array:
		for it := value.Children(); it.Next(); {
			if it.Node().Kind == unstable.InlineTable {
				o.children(p, full+".", it.Node())
			}
		}
	}
}

func (o outline) children(p *unstable.Parser, table string, n *unstable.Node) {
	for it := n.Children(); it.Next(); {
		o.add(p, table, it.Node())
	}
}

func (o outline) put(p *unstable.Parser, full string, n *unstable.Node) {
	if _, known := o[full]; known {
		return
	}
	key := n.Key()
	key.Next()
	at := p.Shape(key.Node().Raw).Start
	kind := n.Kind
	if kind == unstable.KeyValue {
		kind = n.Value().Kind
	}
	o[full] = setting{index.ReplaceAllString(full, ""), at.Line, at.Column, kind}
}

// Problems compares the keys with those that a Config has: each must be
// known, and have a value of its kind.
func (o outline) problems() (ps Problems) {
	known := make(map[string]reflect.Type)
	options(reflect.TypeFor[Config](), "", known)
	for full, s := range o {
		t, ok := known[s.name]
		if !ok {
			if parent, _, nested := cutLast(s.name); nested && known[parent] == nil {
				continue // reported for its table
			}
			ps.add(full, "there is no such key%s", meant(s.name, known))
			continue
		}
		if want, kinds := wanted(t); !slices.Contains(kinds, s.kind) {
			ps.add(full, "%s is wanted, not %s", want, spoken(s.kind))
		}
	}
	return ps
}

// options lists the keys of a struct and what each holds.
func options(t reflect.Type, prefix string, into map[string]reflect.Type) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
		into[prefix+name] = f.Type
		switch ft := f.Type; {
		case isText(ft):
		case ft.Kind() == reflect.Struct:
			options(ft, prefix+name+".", into)
		case ft.Kind() == reflect.Slice && ft.Elem().Kind() == reflect.Struct:
			options(ft.Elem(), prefix+name+".", into)
		}
	}
}

func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// wanted describes, in words and kinds, what a key's value must be.
func wanted(t reflect.Type) (string, []unstable.Kind) {
	switch {
	case isText(t):
		return "a duration in quotes, like '30m',", []unstable.Kind{unstable.String}
	case t.Kind() == reflect.String:
		return "a string in quotes", []unstable.Kind{unstable.String}
	case t.Kind() == reflect.Bool:
		return "true or false", []unstable.Kind{unstable.Bool}
	case t.Kind() == reflect.Float64:
		return "a number", []unstable.Kind{unstable.Float, unstable.Integer}
	case t.Kind() == reflect.Struct:
		return "a table", []unstable.Kind{unstable.Table, unstable.InlineTable}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return "a list of tables", []unstable.Kind{unstable.ArrayTable, unstable.Array}
	case t.Kind() == reflect.Slice:
		return "a list", []unstable.Kind{unstable.Array}
	default:
		return "a whole number", []unstable.Kind{unstable.Integer}
	}
}

func spoken(k unstable.Kind) string {
	switch k {
	case unstable.String:
		return "a string"
	case unstable.Bool:
		return "true or false"
	case unstable.Integer:
		return "a whole number"
	case unstable.Float:
		return "a number with a fraction"
	case unstable.Array:
		return "a list"
	case unstable.ArrayTable:
		return "a list of tables"
	case unstable.Table, unstable.InlineTable:
		return "a table"
	default:
		return "a date or time"
	}
}

// meant suggests what an unknown key was meant to be: the same name in
// another table, or the nearest in its own.
func meant(name string, known map[string]reflect.Type) string {
	table, last, _ := cutLast(name)
	var elsewhere, siblings []string
	for k := range known {
		t, l, _ := cutLast(k)
		if l == last {
			elsewhere = append(elsewhere, k)
		}
		if t == table {
			siblings = append(siblings, l)
		}
	}
	slices.Sort(siblings)
	best, near := nearest.To(last, siblings)
	switch {
	case near && table != "":
		return fmt.Sprintf("; did you mean %s.%s?", table, best)
	case near:
		return fmt.Sprintf("; did you mean %s?", best)
	case len(elsewhere) == 1:
		return fmt.Sprintf("; did you mean %s?", elsewhere[0])
	}
	return "; known here: " + strings.Join(siblings, ", ")
}

// cutLast splits "a.b.c" into "a.b" and "c".
func cutLast(name string) (before, last string, found bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return "", name, false
	}
	return name[:i], name[i+1:], true
}
