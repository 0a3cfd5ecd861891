package yedda

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/draw"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// browser is a page in a browser without a screen.
type browser struct {
	t    *testing.T
	name string
	driver
}

// driver is what a browser does for a test.
type driver interface {
	// visit goes to a page, which may not be ready when it returns.
	visit(url string) error
	// back goes to the page before.
	back() error
	// value is the value of an expression in the page, or what its promise brings.
	value(expression string) (json.RawMessage, error)
	// press presses a key and lets it go.
	press(k key) error
	// mouse presses the mouse at a place in the page.
	mouse(x, y float64) error
	// view makes the page so many pixels large.
	view(width, height int) error
	// emulate has a page look as on a medium, if it is not "", and with a media feature.
	// It returns errNotHere where the browser has no way to.
	emulate(medium, feature, value string) error
	// picture is the page in view, a PNG.
	picture() ([]byte, error)
	// console is what came of exceptions and messages since it was last asked.
	console() ([]string, error)
}

// errNotHere is of what a browser's driver cannot do.
var errNotHere = errors.New("this browser cannot be asked to")

// key is a key of a keyboard: what it says and the place that it has, as KeyboardEvent's
// key and code. Where placed, another keyboard than a US one has it there.
type key struct {
	key, code string
	shift     bool
	placed    bool
}

// browsers are those that can be driven, in the order in which they are looked for.
var browsers = []struct {
	name     string
	programs []string // any of them
	needs    string   // and what else it takes
	start    func(ctx context.Context, t *testing.T, program, downloads string) (driver, error)
}{
	{"chromium", []string{"chromium", "chromium-browser", "google-chrome"}, "", startChromium},
	{"firefox", []string{"firefox-esr", "firefox"}, "", startFirefox},
	{"webkit", []string{"WebKitWebDriver"}, "Xvfb", startWebKit},
}

// openBrowser starts a browser on a file, or on nothing yet; what the page saves
// goes to downloads. LINNET_BROWSER says which it has to be.
func openBrowser(t *testing.T, file, downloads string) *browser {
	t.Helper()
	if testing.Short() {
		t.Skip("no browser is started with -short, so the page was opened in none")
	}
	wanted, names := os.Getenv("LINNET_BROWSER"), ""
	for _, b := range browsers {
		names += " " + b.name
		if wanted != "" && wanted != b.name {
			continue
		}
		for _, name := range b.programs {
			program, err := exec.LookPath(name)
			if err == nil && b.needs != "" {
				_, err = exec.LookPath(b.needs)
			}
			if err != nil {
				continue
			}
			if err := os.MkdirAll(downloads, 0o777); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			t.Cleanup(cancel)
			d, err := b.start(ctx, t, program, downloads)
			if err != nil {
				t.Fatalf("%s: %v", b.name, err)
			}
			page := &browser{t, b.name, d}
			page.size(1280, 800)
			if file != "" {
				page.open(file)
			}
			return page
		}
	}
	if wanted != "" {
		t.Fatalf("LINNET_BROWSER=%s: it is not installed, or none of%s", wanted, names)
	}
	t.Skipf("none of%s is installed, so the page was opened in no browser", names)
	return nil
}

// ownFolder is one for a browser's own files. What it leaves behind when it ends may write
// there for a moment more, at which t.TempDir fails.
func ownFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "linnet-browser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := os.RemoveAll(dir)
		for end := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(end); err = os.RemoveAll(dir) {
			time.Sleep(50 * time.Millisecond)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return dir
}

// must fails where a browser did not do what it was asked for.
func (b *browser) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// navigate goes to a file.
func (b *browser) navigate(file string) string {
	b.t.Helper()
	url := "file://" + filepath.ToSlash(file)
	b.must(b.visit(url))
	return url
}

// open waits until the page of a file is ready.
func (b *browser) open(file string) {
	b.t.Helper()
	url := b.navigate(file)
	b.wait(fmt.Sprintf(`location.href === %q && document.getElementById("status") && document.getElementById("status").textContent !== ""`, url))
}

// opening is the time in ms that the page took to open, whose script ends before it does.
func (b *browser) opening() (took float64) {
	b.t.Helper()
	const end = `performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd`
	b.wait(end) // it is 0 until then
	b.eval(end, &took)
	return took
}

// eval is the value of an expression in the page.
func (b *browser) eval(expression string, value any) {
	b.t.Helper()
	got, err := b.value(expression)
	if err == nil {
		err = json.Unmarshal(got, value)
	}
	if err != nil {
		b.t.Fatalf("%s: %v: %s", expression, err, got)
	}
}

func (b *browser) wait(condition string) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var ok bool
		if b.eval("!!("+condition+")", &ok); ok {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("not within a minute: %s", condition)
		}
	}
}

// comeBack goes back to the page before, a file's, and waits until it is ready.
func (b *browser) comeBack(file string) {
	b.t.Helper()
	b.must(b.back())
	b.wait(fmt.Sprintf(`location.href === %q && document.readyState === "complete"`, "file://"+filepath.ToSlash(file)))
}

// keys presses keys, one after another, as a keyboard does: "n", "Enter",
// "Shift+1", or with the key's place, "é/Digit2".
func (b *browser) keys(names ...string) {
	b.t.Helper()
	for _, name := range names {
		var k key
		name, k.shift = strings.CutPrefix(name, "Shift+")
		k.key, k.code, k.placed = strings.Cut(name, "/")
		switch c := k.key[0]; {
		case k.placed:
		case k.key == "Space":
			k.key, k.code = " ", "Space"
		case len(k.key) > 1:
			k.code = k.key // Enter, Escape, Tab
		case c >= '0' && c <= '9':
			k.code = "Digit" + k.key
			if k.shift {
				k.key = ")!@#$%^&*("[c-'0':][:1]
			}
		case c|' ' >= 'a' && c|' ' <= 'z':
			k.code = "Key" + strings.ToUpper(k.key)
		}
		b.must(b.press(k))
	}
}

// click presses the mouse in the middle of an element.
func (b *browser) click(id string) {
	b.t.Helper()
	var at [2]float64
	b.eval(fmt.Sprintf(`(() => { const r = document.getElementById(%q).getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; })()`, id), &at)
	b.must(b.mouse(at[0], at[1]))
}

func (b *browser) size(width, height int) {
	b.t.Helper()
	b.must(b.view(width, height))
}

// scheme has the system's colours light or dark, media has a page look as on a medium,
// feature with a media feature. They report whether the browser can.
func (b *browser) scheme(name string) bool { return b.feature("prefers-color-scheme", name) }

func (b *browser) feature(name, value string) bool {
	b.t.Helper()
	return b.can(b.emulate("", name, value))
}

func (b *browser) media(name string) bool {
	b.t.Helper()
	return b.can(b.emulate(name, "", ""))
}

func (b *browser) can(err error) bool {
	b.t.Helper()
	if errors.Is(err, errNotHere) {
		b.t.Log("not looked at: ", err)
		return false
	}
	b.must(err)
	return true
}

func (b *browser) complaints() []string {
	b.t.Helper()
	c, err := b.console()
	b.must(err)
	return c
}

// paint waits until the browser has drawn what is in view, a second at most, as WebKitGTK
// at times draws nothing where nothing is new.
func (b *browser) paint() {
	b.t.Helper()
	var n int
	b.eval(`new Promise((done) => {
  let n = 0;
  const next = () => ++n > 3 ? done(n) : requestAnimationFrame(next);
  next();
  setTimeout(done, 1000, n);
})`, &n)
}

// shoot keeps a picture where LINNET_SCREENSHOTS names a folder.
func (b *browser) shoot(name string) {
	b.t.Helper()
	dir := os.Getenv("LINNET_SCREENSHOTS")
	if dir == "" {
		return
	}
	b.paint()
	data, err := b.picture()
	b.must(err)
	b.must(os.WriteFile(filepath.Join(dir, name+".png"), data, 0o600))
}

// look is the picture of an element that is in view.
func (b *browser) look(id string) string {
	b.t.Helper()
	var box [4]float64
	b.eval(fmt.Sprintf(`(() => { const r = document.getElementById(%q).getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; })()`, id), &box)
	b.paint()
	data, err := b.picture()
	b.must(err)
	page, err := png.Decode(bytes.NewReader(data))
	b.must(err)
	part := image.NewRGBA(image.Rect(int(box[0]), int(box[1]), int(box[2]), int(box[3])).Intersect(page.Bounds()))
	draw.Draw(part, part.Rect, page, part.Rect.Min, draw.Src)
	return string(part.Pix)
}
