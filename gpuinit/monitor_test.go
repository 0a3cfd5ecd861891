package gpuinit

import (
	"slices"
	"strings"
	"testing"
)

func TestUsageAdvice(t *testing.T) {
	for mean, want := range map[float64]string{49.9: "raise --prediction_batch_size", 50: "", 95: "", 95.1: "more GPUs"} {
		u := Usage{Device: Device{Index: 3, Name: "A"}, Utilisation: Value{N: 4, Mean: mean}}
		got := u.Advice()
		if (got == "") != (want == "") || !strings.Contains(got, want) || want != "" && !strings.HasPrefix(got, "GPU 3 A worked ") {
			t.Errorf("at %g %%: %q, want %q", mean, got, want)
		}
	}
	if got := (&Usage{Utilisation: Value{N: 3, Mean: 1}}).Advice(); got != "" {
		t.Errorf("of three samples: %q", got)
	}
}

func TestUsageAdd(t *testing.T) {
	one := func(x float64) *Usage {
		return &Usage{Samples: 1, Power: Value{1, x, x, x}, XIDs: []uint64{uint64(x)}, Slowdowns: []string{"heat"}}
	}
	var u Usage
	u.Add(&Usage{})
	for _, x := range []float64{4, 1, 7} {
		u.Add(one(x))
	}
	two := *one(9)
	two.Add(&u)
	if u.Power != (Value{3, 4, 1, 7}) || u.Samples != 3 || !slices.Equal(u.XIDs, []uint64{4, 1, 7}) || !slices.Equal(u.Slowdowns, []string{"heat"}) {
		t.Errorf("%+v", u)
	}
	if two.Power != (Value{4, 5.25, 1, 9}) || two.Memory.N != 0 {
		t.Errorf("%+v", two)
	}
}

func TestUsageTable(t *testing.T) {
	u := Usage{
		Power: Value{3, 4, 1, 7}, Memory: Value{2, 3 << 30, 1 << 30, 5 << 30}, Energy: Value{2, 1.5, 1, 2},
		Errors: Value{1, 2, 2, 2}, XIDs: []uint64{31, 79}, Slowed: Value{4, .75, 0, 1}, Slowdowns: []string{"heat", "power cap"},
	}
	rows := map[string]string{}
	for _, r := range u.Table() {
		rows[r[0]] = strings.Join(r[1:], "|")
	}
	for title, want := range map[string]string{
		"power": "4.0 W|1.0 W|7.0 W", "memory": "3.0 GiB|1.0 GiB|5.0 GiB", "utilisation": "N/A|N/A|N/A",
		"energy in all": "3.0 J||", "XID errors": "31 79||", "slowdowns": "75 % of the time: heat, power cap||",
	} {
		if rows[title] != want {
			t.Errorf("%s: got %q, want %q", title, rows[title], want)
		}
	}
	u = Usage{Errors: Value{N: 1}, Slowed: Value{N: 1}}
	for _, r := range u.Table() {
		want := "N/A"
		if r[0] == "XID errors" || r[0] == "slowdowns" {
			want = "none"
		}
		if r[1] != want {
			t.Errorf("of nothing: %q", r)
		}
	}
}
