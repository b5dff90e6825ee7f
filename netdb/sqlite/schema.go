package sqlite

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ipamd/ipamd/migrations"
)

// A file that another program wrote may hold a view without an end in the place of a
// table, or triggers that take rows away behind each write. So nothing is read of a
// book before its schema is, text for text, what the migrations make.

// A schema is what SQLite keeps of the tables, indices, triggers and views of a
// file: how many of each text there are.
type schema map[object]int

type object struct{ kind, name, table, sql string }

// statistics are what ANALYZE leaves in a book, for SQLite's planner alone.
var statistics = []object{
	{"table", "sqlite_stat1", "sqlite_stat1", "CREATE TABLE sqlite_stat1(tbl,idx,stat)"},
	{"table", "sqlite_stat4", "sqlite_stat4", "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)"},
}

// readSchema asks for sqlite_master: SQLite looks every other name, sqlite_schema
// too, up among what the file defines.
func readSchema(ctx context.Context, q Querier) (schema, error) {
	found := make(schema)
	err := Each(ctx, q, `SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master`, func(s Scanner) error {
		var o object
		if err := s.Scan(&o.kind, &o.name, &o.table, &o.sql); err != nil {
			return err
		}
		found[o]++
		return nil
	})
	for _, o := range statistics {
		delete(found, o)
	}
	return found, err
}

var schemas sync.Map // of migrations, by their text

// schemaOf is the schema that migrations make.
func schemaOf(ctx context.Context, steps []migrations.Migration) (schema, error) {
	var all strings.Builder
	for _, m := range steps {
		all.WriteString(m.SQL)
	}
	if made, ok := schemas.Load(all.String()); ok {
		return made.(schema), nil
	}
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each has a database of its own
	for _, m := range steps {
		if _, err := db.ExecContext(ctx, m.SQL); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	made, err := readSchema(ctx, db)
	if err == nil {
		schemas.Store(all.String(), made)
	}
	return made, err
}

// differs says in which object two schemas differ, "" when they do not.
func (s schema) differs(want schema) string {
	for o := range want {
		if s[o] == 0 {
			return fmt.Sprintf("%s %s is missing, or not as ipamd makes it", o.kind, o.name)
		}
	}
	for o, n := range s {
		if n > want[o] {
			return fmt.Sprintf("%.40s %.80q is not one that ipamd makes", o.kind, o.name)
		}
	}
	return ""
}

// beforeRelease is the sum of the schema that the last build before 0.1.0 made. Its
// books have the number of 0001 and other tables. Schemas of older builds are not known: their
// books are [ErrDamaged].
const beforeRelease = "8a74511455d36cc29b8db1148c587fd2b98f89c484a1230458220fccd121aab3"

// sum is the SHA-256 of all texts, in hexadecimal.
func (s schema) sum() string {
	h := sha256.New()
	for _, o := range slices.SortedFunc(maps.Keys(s), func(x, y object) int {
		return cmp.Or(strings.Compare(x.kind, y.kind), strings.Compare(x.name, y.name), strings.Compare(x.sql, y.sql))
	}) {
		fmt.Fprintf(h, "%d %q\n", s[o], o)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// table reports that a table is as the migrations make it.
func (s schema) table(name string, want schema) bool {
	for o := range want {
		if o.kind == "table" && o.name == name {
			return s[o] == 1
		}
	}
	return false
}

// has reports that a table has a column, by its name in the text.
func (s schema) has(table, column string) bool {
	for o := range s {
		if o.kind == "table" && o.name == table {
			return strings.Contains(o.sql, column)
		}
	}
	return false
}

// checkOurs refuses a file whose schema is not its version's.
func (f *File) checkOurs(ctx context.Context, version int) error {
	want, err := schemaOf(ctx, f.Schema[:version])
	if err != nil {
		return fmt.Errorf("make the schema: %w", err)
	}
	found, err := readSchema(ctx, f.Conn)
	if err != nil {
		return f.Classify("read the schema", err)
	}
	if found.sum() == beforeRelease {
		return ErrOldBuild
	}
	if why := found.differs(want); why != "" {
		return fmt.Errorf("%w: its schema is not ipamd's: %s", ErrDamaged, why)
	}
	return nil
}

// harden completes how a file is opened that may be any user's: nothing in its schema
// is run that is not ours, and a page is looked over before its cells are read.
func harden(q url.Values) url.Values {
	q["_pragma"] = append(q["_pragma"], "trusted_schema(0)", "cell_size_check(1)")
	q["_defensive"], q["_dqs"] = []string{"1"}, []string{"0"}
	return q
}

// longest bounds a string, a row and a statement, in bytes. Requests are far below.
const longest = 16 << 20

// limit bounds what a file can make SQLite do on a connection.
func limit(c *sql.Conn) error {
	var errs []error
	for id, most := range map[int]int{
		sqlite3.SQLITE_LIMIT_LENGTH:          longest,
		sqlite3.SQLITE_LIMIT_SQL_LENGTH:      longest,
		sqlite3.SQLITE_LIMIT_EXPR_DEPTH:      200,
		sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 10,
		sqlite3.SQLITE_LIMIT_ATTACHED:        0,
	} {
		_, err := sqlite.Limit(c, id, most)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
