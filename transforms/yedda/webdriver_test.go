package yedda

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// webDriver is a browser that takes WebDriver's commands (W3C, WebDriver), Firefox by
// its Marionette and WebKitGTK by HTTP.
type webDriver struct {
	// call sends a command and waits for its answer's value. It goes by two names, that of
	// Marionette and the path that HTTP has for it.
	call func(name, path string, params map[string]any, value any) error
}

// newSession asks for a page whose scripts may take a minute.
var newSession = map[string]any{"capabilities": map[string]any{"alwaysMatch": map[string]any{"timeouts": map[string]any{"script": 60000}}}}

// keyCodes are the code points by which WebDriver knows keys that say no character.
var keyCodes = map[string]string{"ArrowUp": "\ue013", "ArrowDown": "\ue015", "Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "Shift": "\ue008"}

func (w *webDriver) visit(url string) error {
	return w.call("WebDriver:Navigate", "/url", map[string]any{"url": url}, nil)
}

func (w *webDriver) back() error {
	return w.call("WebDriver:Back", "/back", map[string]any{}, nil)
}

func (w *webDriver) value(expression string) (json.RawMessage, error) {
	var got struct {
		Value json.RawMessage
		Error *string
	}
	script := "const done = arguments[arguments.length - 1];\n" +
		"Promise.resolve().then(() => (" + expression + ")).then((value) => done({value}), (e) => done({error: String(e)}));"
	err := w.call("WebDriver:ExecuteAsyncScript", "/execute/async", map[string]any{"script": script, "args": []any{}}, &got)
	if err == nil && got.Error != nil {
		err = fmt.Errorf("%s", *got.Error)
	}
	return got.Value, err
}

func (w *webDriver) press(k key) error {
	if k.placed {
		// WebDriver knows a US keyboard alone.
		event, err := json.Marshal(map[string]any{"key": k.key, "code": k.code, "shiftKey": k.shift, "bubbles": true, "cancelable": true})
		if err != nil {
			return err
		}
		_, err = w.value(fmt.Sprintf(`["keydown", "keyup"].forEach((type) => document.activeElement.dispatchEvent(new KeyboardEvent(type, %s)))`, event))
		return err
	}
	value, ok := keyCodes[k.key]
	if !ok {
		value = k.key
	}
	actions := []map[string]string{{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}}
	if k.shift {
		shift := keyCodes["Shift"]
		actions = append(append([]map[string]string{{"type": "keyDown", "value": shift}}, actions...), map[string]string{"type": "keyUp", "value": shift})
	}
	return w.act("key", actions)
}

func (w *webDriver) mouse(x, y float64) error {
	return w.act("pointer", []map[string]any{
		{"type": "pointerMove", "x": int(math.Round(x)), "y": int(math.Round(y)), "duration": 0},
		{"type": "pointerDown", "button": 0},
		{"type": "pointerUp", "button": 0},
	})
}

func (w *webDriver) act(device string, actions any) error {
	return w.call("WebDriver:PerformActions", "/actions", map[string]any{"actions": []any{map[string]any{"type": device, "id": device, "actions": actions}}}, nil)
}

func (w *webDriver) picture() (picture []byte, err error) {
	err = w.call("WebDriver:TakeScreenshot", "/screenshot", nil, &picture)
	return picture, err
}

// firefox has what WebDriver has no command for from its own scripts.
type firefox struct {
	webDriver
	emulated [3]string
}

func startFirefox(ctx context.Context, t *testing.T, program, downloads string) (driver, error) {
	home := ownFolder(t)
	prefs := ""
	for name, value := range map[string]any{
		"marionette.port":                                       0, // any that is free, which it writes down
		"browser.download.dir":                                  downloads,
		"browser.download.folderList":                           2,
		"browser.download.useDownloadDir":                       true,
		"browser.download.always_ask_before_handling_new_types": false,
		"browser.download.alwaysOpenPanel":                      false,
		"browser.shell.checkDefaultBrowser":                     false,
		"datareporting.policy.dataSubmissionEnabled":            false,
		"app.normandy.enabled":                                  false,
		"app.update.enabled":                                    false,
		"toolkit.telemetry.enabled":                             false,
		"browser.safebrowsing.downloads.enabled":                false,
		"network.captive-portal-service.enabled":                false,
		"network.connectivity-service.enabled":                  false,
	} {
		v, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		prefs += fmt.Sprintf("user_pref(%q, %s);\n", name, v)
	}
	if err := os.WriteFile(filepath.Join(home, "user.js"), []byte(prefs), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "--headless", "--marionette", "--remote-allow-system-access", "--no-remote", "--profile", home)
	cmd.Env = append(os.Environ(), "HOME="+home, "MOZ_HEADLESS_WIDTH=1600", "MOZ_HEADLESS_HEIGHT=1400", "MOZ_CRASHREPORTER_DISABLE=1")
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	conn, err := activePort(filepath.Join(home, "MarionetteActivePort"))
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	m := &marionette{conn: conn, in: bufio.NewReader(conn)}
	f := &firefox{webDriver: webDriver{call: m.call}}
	t.Cleanup(func() {
		_ = m.call("Marionette:Quit", "", map[string]any{"flags": []string{"eForceQuit"}}, nil)
		leave(cmd)
		conn.Close()
	})
	if _, err := m.read(); err != nil { // it says who it is
		return nil, err
	}
	return f, m.call("WebDriver:NewSession", "", newSession, nil)
}

// activePort waits until a port stands in a file, and somebody answers there.
func activePort(file string) (conn net.Conn, err error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var port []byte
		if port, err = os.ReadFile(file); err != nil {
			continue
		}
		if conn, err = net.Dial("tcp", "127.0.0.1:"+strings.TrimSpace(string(port))); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// marionette is Firefox's own connection: messages are JSON behind their length.
type marionette struct {
	conn net.Conn
	in   *bufio.Reader
	id   int
}

func (m *marionette) read() ([]byte, error) {
	length, err := m.in.ReadString(':')
	if err != nil {
		return nil, fmt.Errorf("firefox is gone: %v", err)
	}
	n, err := strconv.Atoi(strings.TrimSuffix(length, ":"))
	if err != nil {
		return nil, err
	}
	message := make([]byte, n)
	_, err = io.ReadFull(m.in, message)
	return message, err
}

func (m *marionette) call(name, _ string, params map[string]any, value any) error {
	if params == nil {
		params = map[string]any{"full": false} // of a picture
	}
	m.id++
	message, err := json.Marshal([]any{0, m.id, name, params})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(m.conn, "%d:%s", len(message), message); err != nil {
		return err
	}
	answer, err := m.read()
	if err != nil {
		return err
	}
	var result struct{ Value json.RawMessage }
	var failure *struct{ Error, Message string }
	var kind, id int
	if err := json.Unmarshal(answer, &[]any{&kind, &id, &failure, &result}); err != nil {
		return err
	}
	if failure != nil {
		return fmt.Errorf("%s: %s: %s", name, failure.Error, failure.Message)
	}
	if value == nil {
		return nil
	}
	return json.Unmarshal(result.Value, value)
}

// own is the value of a script of the browser's own, beside the page.
func (f *firefox) own(script string, value any, args ...any) error {
	if err := f.call("Marionette:SetContext", "", map[string]any{"value": "chrome"}, nil); err != nil {
		return err
	}
	if args == nil {
		args = []any{}
	}
	err := f.call("WebDriver:ExecuteScript", "", map[string]any{"script": script, "args": args}, value)
	if back := f.call("Marionette:SetContext", "", map[string]any{"value": "content"}, nil); err == nil {
		err = back
	}
	return err
}

func (f *firefox) view(width, height int) error {
	err := f.own(`const {style} = gBrowser.selectedBrowser, [width, height] = arguments;
style.minWidth = style.maxWidth = width + "px";
style.minHeight = style.maxHeight = height + "px";`, nil, width, height)
	if err != nil {
		return err
	}
	got, err := f.value(fmt.Sprintf(`new Promise((done) => {
  const look = () => innerWidth === %d && innerHeight === %d ? done(0) : requestAnimationFrame(look);
  look();
})`, width, height))
	if err != nil {
		return fmt.Errorf("a page of %d by %d: %v %s", width, height, err, got)
	}
	return nil
}

// visit emulates again: another page has another context.
func (f *firefox) visit(url string) error {
	if err := f.webDriver.visit(url); err != nil {
		return err
	}
	return f.emulate(f.emulated[0], f.emulated[1], f.emulated[2])
}

func (f *firefox) emulate(medium, feature, value string) error {
	f.emulated = [3]string{medium, feature, value}
	return f.own(`const context = gBrowser.selectedBrowser.browsingContext, [medium, feature, value] = arguments;
context.mediumOverride = medium;
context.prefersColorSchemeOverride = feature === "prefers-color-scheme" ? value : "none";
context.forcedColorsOverride = feature === "forced-colors" ? value : "none";`, nil, medium, feature, value)
}

func (f *firefox) console() (said []string, err error) {
	err = f.own(`const said = Services.console.getMessageArray().filter((m) => m instanceof Ci.nsIScriptError && m.sourceName.startsWith("file:")).map((m) => m.message);
Services.console.reset();
return said;`, &said)
	return said, err
}

// webKit is WebKitGTK's MiniBrowser, which needs a display, and has a toolbar that is never
// narrower than some 450 pixels.
type webKit struct{ webDriver }

func startWebKit(ctx context.Context, t *testing.T, program, downloads string) (driver, error) {
	home := ownFolder(t)
	if err := os.WriteFile(filepath.Join(home, "user-dirs.dirs"), fmt.Appendf(nil, "XDG_DOWNLOAD_DIR=%q\n", downloads), 0o600); err != nil {
		return nil, err
	}
	display, theirDisplay, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	screen := exec.CommandContext(ctx, "Xvfb", "-displayfd", "3", "-screen", "0", "1600x1400x24", "-nolisten", "tcp")
	screen.ExtraFiles = []*os.File{theirDisplay}
	if err := screen.Start(); err != nil {
		return nil, err
	}
	theirDisplay.Close()
	t.Cleanup(func() {
		_ = screen.Process.Signal(os.Interrupt)
		leave(screen)
		display.Close()
	})
	number, err := bufio.NewReader(display).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("Xvfb: %v", err)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "--port="+port)
	cmd.Env = append(os.Environ(), "DISPLAY=:"+strings.TrimSpace(number), "GDK_BACKEND=x11",
		"HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home, "XDG_DATA_HOME="+home)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	base := "http://127.0.0.1:" + port
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(end) {
			return nil, err
		}
	}
	var session struct{ SessionID string }
	if err := webKitCall(ctx, http.MethodPost, base+"/session", newSession, &session); err != nil {
		return nil, err
	}
	base += "/session/" + session.SessionID
	t.Cleanup(func() {
		_ = webKitCall(context.Background(), http.MethodDelete, base, nil, nil)
		_ = cmd.Process.Signal(os.Interrupt)
		leave(cmd)
	})
	k := new(webKit)
	k.call = func(_, path string, params map[string]any, value any) error {
		method := http.MethodPost
		if params == nil {
			method = http.MethodGet
		}
		return webKitCall(ctx, method, base+path, params, value)
	}
	return k, nil
}

// freePort is a port that nobody listens at.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

func webKitCall(ctx context.Context, method, url string, params map[string]any, value any) error {
	var body io.Reader
	if params != nil {
		data, err := json.Marshal(params)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct{ Value json.RawMessage }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, url, answer.Value)
	}
	if value == nil {
		return nil
	}
	return json.Unmarshal(answer.Value, value)
}

// view asks for a window and looks how large the page in it is.
func (k *webKit) view(width, height int) error {
	want := [2]int{width, height}
	asked := want
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err := k.call("", "/window/rect", map[string]any{"x": 0, "y": 0, "width": asked[0], "height": asked[1]}, nil); err != nil {
			return err
		}
		got, err := k.value("[innerWidth, innerHeight]")
		if err != nil {
			return err
		}
		var size [2]int
		if err := json.Unmarshal(got, &size); err != nil {
			return err
		}
		if size == want || width < 450 && size[1] == height {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("a page of %v is %v", want, size)
		}
		asked[1] = height + asked[1] - size[1]
	}
}

func (k *webKit) emulate(medium, feature, value string) error {
	if medium == "" && feature == "prefers-color-scheme" && value == "light" {
		return nil
	}
	return errNotHere
}

// visit listens for exceptions from when the page is there: one before leaves a page that
// is not ready.
func (k *webKit) visit(url string) error {
	if err := k.webDriver.visit(url); err != nil {
		return err
	}
	_, err := k.value(`(() => {
  window.exceptions = [];
  for (const type of ["error", "unhandledrejection"]) addEventListener(type, (event) => window.exceptions.push(String(event.message || event.reason)));
})()`)
	return err
}

func (k *webKit) console() (said []string, err error) {
	got, err := k.value("(window.exceptions || []).splice(0)")
	if err == nil {
		err = json.Unmarshal(got, &said)
	}
	return said, err
}
