package salvage_test

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/salvage"
)

// files lists what is in a folder.
func files(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// raw runs a script on a file, past ipamd.
func raw(t *testing.T, path, script string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(script); err != nil {
		t.Fatal(err)
	}
}

// predecessors makes a file as the predecessor did, with rows more.
func predecessors(t *testing.T, rows string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "net.db")
	raw(t, path, `CREATE TABLE ips (ip TEXT PRIMARY KEY, subnet TEXT, reserved INTEGER DEFAULT 1, released_at INTEGER DEFAULT NULL);
		CREATE TABLE subnets (cidr TEXT PRIMARY KEY, parent TEXT, identifier TEXT, reserved INTEGER DEFAULT 1, UNIQUE(parent, identifier));
		CREATE TABLE interfaces (name TEXT PRIMARY KEY, reserved INTEGER DEFAULT 1);`+rows)
	return path
}

// What the predecessor held is held, what it released cools in the order of its release,
// and each row that means nothing is named by table, key and field, with its address held.
func TestPredecessor(t *testing.T) {
	path := predecessors(t, `
		INSERT INTO ips VALUES ('10.8.64.10', '10.8.64.0/24', 1, NULL), ('10.8.64.2', '10.8.64.0/24', 1, NULL),
			('10.8.64.3', '10.8.64.0/24', 0, 1700000100), ('10.8.64.4', '10.8.64.0/24', 0, 1700000000);
		INSERT INTO subnets VALUES ('10.8.64.0/24', '10.8.0.0/16', 'runner', 1), ('10.8.65.0/24', '10.8.0.0/16', 'gone', 0);
		INSERT INTO interfaces VALUES ('veth1', 1), ('veth2', 0);`)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := salvage.Predecessor(path)
	if err != nil || len(s.Problems) > 0 {
		t.Fatal(s.Problems, err)
	}
	var rows []string
	for _, l := range s.Leases {
		rows = append(rows, l.Addr.String()+" "+string(l.State))
	}
	if got := strings.Join(rows, ", "); got != "10.8.64.2 bound, 10.8.64.3 cooling, 10.8.64.4 cooling, 10.8.64.10 bound" {
		t.Errorf("its rows are %s", got)
	}
	if s.Leases[2].Rev >= s.Leases[1].Rev {
		t.Error("what was released first does not come first")
	}
	if len(s.Subnets) != 1 || len(s.HostNames) != 1 || s.HostNames[0].Name != "veth1" {
		t.Errorf("its prefixes are %v, its names %v", s.Subnets, s.HostNames)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("it was changed, or %v", err)
	}
}

// Tables of the same columns that were made WITHOUT ROWID are read as the others are.
func TestPredecessorWithoutRowids(t *testing.T) {
	path := filepath.Join(t.TempDir(), "net.db")
	raw(t, path, `CREATE TABLE ips (ip TEXT PRIMARY KEY, subnet TEXT, reserved INTEGER, released_at INTEGER) WITHOUT ROWID;
		CREATE TABLE subnets (cidr TEXT PRIMARY KEY, parent TEXT, identifier TEXT, reserved INTEGER) WITHOUT ROWID;
		CREATE TABLE interfaces (name TEXT PRIMARY KEY, reserved INTEGER) WITHOUT ROWID;
		INSERT INTO ips VALUES ('10.8.64.3', '10.8.64.0/24', 1, NULL), ('10.8.64.2', '10.8.64.0/24', 0, 1700000000);
		INSERT INTO subnets VALUES ('10.8.64.0/24', NULL, 'runner', 1);
		INSERT INTO interfaces VALUES ('veth1', 1);`)
	s, err := salvage.Predecessor(path)
	if err != nil || len(s.Problems) > 0 || len(s.Leases) != 2 || s.Leases[0].State != ipam.Cooling || s.Leases[1].State != ipam.Bound || len(s.Subnets) != 1 || len(s.HostNames) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestPredecessorsBadRows(t *testing.T) {
	for name, bad := range map[string]struct {
		row, says string
		held      bool
	}{
		"no address":                {`INSERT INTO ips VALUES ('10.8.64.999', '10.8.64.0/24', 1, NULL)`, `table ips, row "10.8.64.999", field ip`, false},
		"a key that is a number":    {`INSERT INTO ips VALUES (NULL, '10.8.64.0/24', 1, NULL)`, `table ips, row NULL, field ip`, false},
		"a prefix length behind it": {`INSERT INTO ips VALUES ('10.8.64.2/24', '10.8.64.0/24', 0, 1700000000)`, `row "10.8.64.2/24", field ip: it is spelled otherwise than 10.8.64.2: it counts as held`, true},
		"IPv4 in IPv6":              {`INSERT INTO ips VALUES ('::ffff:10.8.64.2', '10.8.64.0/24', 0, 1700000000)`, `row "::ffff:10.8.64.2", field ip`, true},
		"a zone":                    {`INSERT INTO ips VALUES ('fd00::2%eth0', 'fd00::/64', 1, NULL)`, `row "fd00::2%eth0", field ip`, true},
		"blanks around it":          {`INSERT INTO ips VALUES (' 10.8.64.2' || char(10), '10.8.64.0/24', 1, NULL)`, `row " 10.8.64.2\n", field ip`, true},
		"a blob of its text":        {`INSERT INTO ips VALUES (CAST('10.8.64.2' AS BLOB), '10.8.64.0/24', 1, NULL)`, `row "10.8.64.2", field ip`, true},
		"a blob of its bytes":       {`INSERT INTO ips VALUES (X'0A084002', '10.8.64.0/24', 1, NULL)`, `row "\n\b@\x02", field ip`, true},
		"a blob of nothing":         {`INSERT INTO ips VALUES (X'0A0840', '10.8.64.0/24', 1, NULL)`, `row "\n\b@", field ip: no address can be read in it: none is held`, false},
		"leading zeroes":            {`INSERT INTO ips VALUES ('010.008.064.002', '10.8.64.0/24', 1, NULL)`, `row "010.008.064.002", field ip: no address can be read in it`, false},
		"twice, and held once":      {`INSERT INTO ips VALUES ('fd00::2', 'fd00::/64', 0, 1700000000), ('fd00:0::2', 'fd00::/64', 1, NULL)`, `row "fd00:0::2", field ip: fd00::2 is there twice: it counts as held`, true},
		"two spellings":             {`INSERT INTO ips VALUES ('fd00::2', 'fd00::/64', 1, NULL), ('fd00:0::2', 'fd00::/64', 0, 1700000000)`, `table ips, row "fd00:0::2", field ip`, true},
		"no prefix":                 {`INSERT INTO ips VALUES ('10.8.64.2', 'here', 1, NULL)`, `row "10.8.64.2", field subnet: "here"`, true},
		"another prefix":            {`INSERT INTO ips VALUES ('10.8.64.2', '10.8.65.0/24', 1, NULL)`, `row "10.8.64.2", field subnet: "10.8.65.0/24" does not contain`, true},
		"reserved is a word":        {`INSERT INTO ips VALUES ('10.8.64.2', '10.8.64.0/24', 'yes', NULL)`, `row "10.8.64.2", field reserved: "yes"`, true},
		"reserved is 2":             {`INSERT INTO ips VALUES ('10.8.64.2', '10.8.64.0/24', 2, NULL)`, `row "10.8.64.2", field reserved: 2`, true},
		"reserved is missing":       {`INSERT INTO ips VALUES ('10.8.64.2', '10.8.64.0/24', NULL, 1700000000)`, `row "10.8.64.2", field reserved: NULL`, true},
		"released without a time":   {`INSERT INTO ips VALUES ('10.8.64.2', '10.8.64.0/24', 0, NULL)`, `row "10.8.64.2", field released_at: it is NULL`, true},
		"a time that is a word":     {`INSERT INTO ips VALUES ('10.8.64.2', '10.8.64.0/24', 0, 'today')`, `row "10.8.64.2", field released_at: "today"`, true},
		"a time before 1970":        {`INSERT INTO ips VALUES ('10.8.64.2', '10.8.64.0/24', 0, -1)`, `row "10.8.64.2", field released_at: -1`, true},
		"held and released":         {`INSERT INTO ips VALUES ('10.8.64.2', '10.8.64.0/24', 1, 1700000000)`, `row "10.8.64.2", field released_at: it is set`, true},
		"a subnet that is none":     {`INSERT INTO subnets VALUES ('10.8.64.7/24', NULL, 'x', 1)`, `table subnets, row "10.8.64.7/24", field cidr`, false},
		"a parent elsewhere":        {`INSERT INTO subnets VALUES ('10.8.64.0/24', '10.9.0.0/16', 'x', 1)`, `row "10.8.64.0/24", field parent`, false},
		"a long name":               {`INSERT INTO interfaces VALUES ('a-name-of-16-byte', 1)`, `table interfaces, row "a-name-of-16-byte", field name`, false},
		"a name held by a word":     {`INSERT INTO interfaces VALUES ('veth1', 'x')`, `row "veth1", field reserved: "x"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := salvage.Predecessor(predecessors(t, bad.row))
			if err != nil || len(s.Problems) != 1 || !strings.Contains(s.Problems[0], bad.says) {
				t.Fatalf("%q, %v, want %s", s.Problems, err, bad.says)
			}
			if held := len(s.Leases) == 1 && s.Leases[0].State == ipam.Bound; held != bad.held {
				t.Errorf("its rows are %v", s.Leases)
			}
		})
	}
}

// A page of the predecessor's file is damaged: the file is refused whole, wherever the page
// lies, and so is what reads of it without an error; and it stays, byte for byte, what it was.
func TestPredecessorOfADamagedPage(t *testing.T) {
	whole := predecessors(t, `INSERT INTO ips SELECT '10.8.' || (value / 250) || '.' || (value % 250), '10.8.0.0/16', 1, NULL FROM (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 4000) SELECT value FROM n)`)
	was, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := salvage.Predecessor(whole); err != nil || len(s.Leases) != 4000 {
		t.Fatalf("%d rows, %v", len(s.Leases), err)
	}
	const page = 4096
	index := bytes.LastIndex(was, []byte("10.8.15.2")) / page // of the primary key, which a reading of all rows does not look at
	row := bytes.LastIndex(was, []byte("10.8.0.0/16")) / page
	for name, spoil := range map[string]func(b []byte){
		"zeroes in a page of rows":      func(b []byte) { clear(b[row*page : (row+1)*page]) },
		"a page of the index is rubble": func(b []byte) { copy(b[index*page:(index+1)*page], bytes.Repeat([]byte("rubble"), page/6)) },
		"a key of the index is another": func(b []byte) { copy(b[bytes.LastIndex(b, []byte("10.8.15.2")):], "10.8.99.2") },
		"a count of cells":              func(b []byte) { b[row*page+4] ^= 1 },
	} {
		t.Run(name, func(t *testing.T) {
			damaged := bytes.Clone(was)
			spoil(damaged)
			if bytes.Equal(damaged, was) {
				t.Fatal("nothing is damaged")
			}
			path := filepath.Join(t.TempDir(), "net.db")
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			if s, err := salvage.Predecessor(path); !errors.Is(err, netdb.ErrDamaged) || len(s.Leases) > 0 || !strings.Contains(err.Error(), path) {
				t.Errorf("%d rows, %v", len(s.Leases), err)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, damaged) {
				t.Errorf("it was changed, or %v", err)
			}
			if beside, err := os.ReadDir(filepath.Dir(path)); err != nil || len(beside) != 1 {
				t.Errorf("beside it lie %v, %v", beside, err)
			}
		})
	}
}

// What is not the predecessor's file, or not all of it, is refused whole.
func TestPredecessorRefuses(t *testing.T) {
	dir := t.TempDir()
	made := func(name, script string) string {
		path := filepath.Join(dir, name)
		raw(t, path, script)
		return path
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("ips, subnets and interfaces, and none of them a table"), 0o600); err != nil {
		t.Fatal(err)
	}
	torn := predecessors(t, `INSERT INTO ips SELECT '10.8.' || (value / 250) || '.' || (value % 250), '10.8.0.0/16', 1, NULL FROM (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 4000) SELECT value FROM n)`)
	st, err := os.Stat(torn)
	if err == nil {
		err = os.Truncate(torn, st.Size()/2)
	}
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/dev/zero", link); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"not there": filepath.Join(dir, "none"), "a folder": dir, "a device": link,
	} {
		if _, err := salvage.Predecessor(path); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	for name, want := range map[string]struct {
		path  string
		class error
		says  string
	}{
		"text":       {text, salvage.ErrNotPredecessor, "no SQLite database"},
		"other":      {made("other", `CREATE TABLE ips (ip TEXT)`), salvage.ErrNotPredecessor, "no column"},
		"no tables":  {made("none.db", `CREATE TABLE x (ip TEXT)`), salvage.ErrNotPredecessor, "no table ips"},
		"a view":     {made("view.db", `CREATE VIEW ips AS SELECT 1 AS ip, 2 AS subnet, 3 AS reserved, 4 AS released_at`), salvage.ErrNotPredecessor, "no table ips"},
		"half of it": {torn, netdb.ErrDamaged, ""},
	} {
		if s, err := salvage.Predecessor(want.path); !errors.Is(err, want.class) || !strings.Contains(err.Error(), want.says) || len(s.Leases) > 0 {
			t.Errorf("%s: %v, %v", name, s.Leases, err)
		}
	}
}
