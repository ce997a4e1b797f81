package search

import (
	"errors"
	"math"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/record"
)

var now = time.Date(2026, 9, 17, 12, 0, 0, 0, time.UTC)

func params(t testing.TB, text string) url.Values {
	t.Helper()
	q, err := url.ParseQuery(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestParseFilter_ReadsEveryParameter(t *testing.T) {
	got, err := ParseFilter(params(t, "since=7d&until=2026-09-17T13:00:00%2B02:00&status=error,abandoned,error&agent=shop&user=ann&label=env%3Dprod%3D1&label=beta&label=a%3D&tool=search&model=large&error=timeout&rewrote=edit&pending=true&depth=3:&prefix=a%25&words=%20two%20words"), now)
	want := Filter{
		Since: now.AddDate(0, 0, -7), Until: now.Add(-time.Hour), Statuses: []record.Status{record.StatusError, record.StatusAbandoned},
		Agent:  "shop",
		Labels: []LabelIs{{"env", "prod=1", false}, {"beta", "", true}, {"a", "", false}, {"user", "ann", false}},
		Tool:   "search", Model: "large", Error: "timeout", Rewrote: Edit, Pending: true, Depth: &Depth{3, math.MaxInt32}, Prefix: "a%",
		Words: []string{"two", "words"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	if got, err := ParseFilter(params(t, "since=&status=&label=&words=&by=x"), now); err != nil || !reflect.DeepEqual(got, Filter{}) {
		t.Errorf("of empty parameters: %+v, %v", got, err)
	}
}

// A value that says nothing names its parameter and what that takes.
func TestParse_RefusesNonsense(t *testing.T) {
	long := strings.Repeat("x", 600)
	for _, text := range []string{
		"since=yesterday", "since=-1h", "since=1.5h", "since=d", "since=9999999999d", "since=1969-01-01T00:00:00Z", "until=2300-01-01T00:00:00Z",
		"until=3s",
		"status=done", "status=error,", "agent=" + long, "agent=%ff", "tool=" + long, "model=" + long, "error=" + long, "prefix=" + long,
		"depth=x", "depth=-1", "depth=:", "depth=5:3", "depth=1:2:3", "depth=99999999999",
		"label=%3Dx", "label=" + long, "user=" + long, "rewrote=rewind", "pending=1", "words=+", "words=" + long,
		"words=" + strings.Repeat("w+", 33),
		"sort=cost", "order=up", "limit=0", "limit=1001", "limit=x", "after=!", "after=e30",
		"label=" + strings.Repeat("a&label=", 17) + "a",
	} {
		name, _, _ := strings.Cut(text, "=")
		var bad *ParameterError
		if _, err := ParseQuery(params(t, text), "acme", now); !errors.As(err, &bad) || bad.Param != name || len(err.Error()) > 300 {
			t.Errorf("%.40s: %v", text, err)
		}
	}
	for _, text := range []string{"by=cost", "by=agent,agent", "by=agent,model,day,week", "by=label:", "measure=mean", "measure=runs,runs",
		"measure=,", "limit=10001", "since=x"} {
		name, _, _ := strings.Cut(text, "=")
		var bad *ParameterError
		if _, err := ParseStatistics(params(t, text), now); !errors.As(err, &bad) || bad.Param != name {
			t.Errorf("%s: %v", text, err)
		}
	}
	var bad *ParameterError
	if _, err := ParseFilter(params(t, "since=1h&until=2h"), now); !errors.As(err, &bad) || bad.Param != ParamUntil {
		t.Errorf("a range that ends before it begins: %v", err)
	}
}

// A cursor holds for the parameters and the tenant that it is of, and keeps the range that relative times stood for.
func TestCursor_IsBound(t *testing.T) {
	first := params(t, "since=24h&agent=shop&label=b&label=a&limit=2")
	q, err := ParseQuery(first, "acme", now)
	if err != nil {
		t.Fatal(err)
	}
	at := Position{-7, "t\x00é", "r"}
	text, err := q.Cursor(first, "acme", at)
	if err != nil {
		t.Fatal(err)
	}
	again := params(t, "since=24h&agent=shop&label=a&label=b&limit=9&sort=&after="+text)
	later, err := ParseQuery(again, "acme", now.Add(time.Hour))
	if err != nil || !later.Since.Equal(q.Since) || later.After == nil || *later.After != at {
		t.Errorf("the next page: %+v, %v", later, err)
	}
	for name, c := range map[string]struct{ tenant, query string }{
		"another tenant":     {"umbrella", "since=24h&agent=shop&label=a&label=b"},
		"another agent":      {"acme", "since=24h&agent=sho&label=a&label=b"},
		"another time":       {"acme", "since=25h&agent=shop&label=a&label=b"},
		"no time":            {"acme", "agent=shop&label=a&label=b"},
		"one label less":     {"acme", "since=24h&agent=shop&label=a"},
		"one condition more": {"acme", "since=24h&agent=shop&label=a&label=b&tool=x"},
		"another sort":       {"acme", "since=24h&agent=shop&label=a&label=b&sort=tokens"},
		"another order":      {"acme", "since=24h&agent=shop&label=a&label=b&order=asc"},
	} {
		var bad *ParameterError
		if _, err := ParseQuery(params(t, c.query+"&after="+text), c.tenant, now); !errors.As(err, &bad) || bad.Param != ParamAfter {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCursor_GoesOnFromTheFirstTimeThereIs(t *testing.T) {
	first := params(t, "since=1970-01-01T00:00:00Z")
	q, err := ParseQuery(first, "acme", now)
	if err != nil {
		t.Fatal(err)
	}
	text, err := q.Cursor(first, "acme", Position{})
	if err != nil {
		t.Fatal(err)
	}
	if later, err := ParseQuery(params(t, "since=1970-01-01T00:00:00Z&after="+text), "acme", now); err != nil || !later.Since.Equal(q.Since) {
		t.Errorf("the next page: %+v, %v", later, err)
	}
}

// Whatever comes as parameters is refused as such, or is within the limits.
func FuzzParse(f *testing.F) {
	f.Add("since=7d&status=error&label=a%3Db&words=a+b&by=label:x,day&measure=runs&after=eyJ2IjoxfQ&limit=3")
	f.Fuzz(func(t *testing.T, text string) {
		q, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		var bad *ParameterError
		s, err := ParseQuery(q, "acme", now)
		if err != nil && !errors.As(err, &bad) {
			t.Errorf("%v is no *ParameterError", err)
		}
		if err == nil && (s.Limit < 1 || s.Limit > maxLimit || len(s.Words) > maxWords || len(s.Labels) > maxLabels+1) {
			t.Errorf("%+v", s)
		}
		if st, err := ParseStatistics(q, now); err != nil && !errors.As(err, &bad) ||
			err == nil && (len(st.By) > maxDimensions || len(st.Measures) == 0) {
			t.Errorf("%+v, %v", st, err)
		}
	})
}

// A time lies in its bucket, and the bucket begins a week, day or hour.
func TestBucket_HoldsItsTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMilli(rapid.Int64Range(-1e12, 9e12).Draw(t, "ms")).UTC()
		for d, layout := range map[Dimension]string{ByHour: time.RFC3339, ByDay: time.DateOnly, ByWeek: time.DateOnly} {
			begin, err := time.Parse(layout, d.Bucket(at))
			length := map[Dimension]time.Duration{ByHour: time.Hour, ByDay: 24 * time.Hour, ByWeek: 7 * 24 * time.Hour}[d]
			if err != nil || at.Before(begin) || !at.Before(begin.Add(length)) || d == ByWeek && begin.Weekday() != time.Monday {
				t.Errorf("%v is in the %s of %v, %v", at, d, begin, err)
			}
		}
	})
}

// The document says all that can be asked for.
func TestDocument_NamesEverything(t *testing.T) {
	text, err := os.ReadFile("../../docs/search.md")
	if err != nil {
		t.Fatal(err)
	}
	names := append(slices.Clone(QueryParams), StatisticsParams...)
	for _, m := range Measures {
		names = append(names, string(m))
	}
	for _, d := range []Dimension{ByAgent, ByModel, ByStatus, ByTool, ByHour, ByDay, ByWeek} {
		names = append(names, string(d))
	}
	for _, name := range names {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/search.md does not name %s", name)
		}
	}
}
