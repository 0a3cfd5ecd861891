package yedda

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// chromium is driven over its debugging pipe.
type chromium struct {
	in      *os.File
	out     *bufio.Reader
	session string
	id      int
	events  []string
}

func startChromium(ctx context.Context, t *testing.T, program, downloads string) (driver, error) {
	args := []string{"--headless=new", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--user-data-dir=" + ownFolder(t)}
	if os.Geteuid() == 0 {
		args = append(args, "--no-sandbox") // Chromium has none for root
	}
	cmd := exec.CommandContext(ctx, program, args...)
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // its files 3 and 4
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	theirIn.Close()
	theirOut.Close()
	c := &chromium{in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		// A browser asked to close leaves no process behind that still writes.
		fmt.Fprintf(in, `{"id":0,"method":"Browser.close"}`+"\x00")
		leave(cmd)
		in.Close()
		out.Close()
	})
	var target struct{ TargetID, SessionID string }
	if err := c.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target); err != nil {
		return nil, err
	}
	if err := c.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target); err != nil {
		return nil, err
	}
	if err := c.call("Browser.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": downloads}, nil); err != nil {
		return nil, err
	}
	c.session = target.SessionID
	if err := c.call("Runtime.enable", nil, nil); err != nil {
		return nil, err
	}
	return c, c.call("Log.enable", nil, nil)
}

// leave waits for a browser that was asked to close.
func leave(cmd *exec.Cmd) {
	timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
}

// call sends a command and waits for its answer.
func (c *chromium) call(method string, params map[string]any, result any) error {
	c.id++
	m := map[string]any{"id": c.id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if c.session != "" && !strings.HasPrefix(method, "Browser.") {
		m["sessionId"] = c.session
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err := c.in.Write(append(data, 0)); err != nil {
		return fmt.Errorf("%s: %v", method, err)
	}
	for {
		line, err := c.out.ReadBytes(0)
		if err != nil {
			return fmt.Errorf("%s: chromium is gone: %v", method, err)
		}
		var got struct {
			ID             int
			Method         string
			Params, Result json.RawMessage
			Error          *struct{ Message string }
		}
		if err := json.Unmarshal(line[:len(line)-1], &got); err != nil {
			return err
		}
		switch {
		case got.ID == 0:
			if got.Method == "Runtime.exceptionThrown" || got.Method == "Runtime.consoleAPICalled" || got.Method == "Log.entryAdded" {
				c.events = append(c.events, string(got.Params))
			}
		case got.ID != c.id:
		case got.Error != nil:
			return fmt.Errorf("%s: %s", method, got.Error.Message)
		case result != nil:
			return json.Unmarshal(got.Result, result)
		default:
			return nil
		}
	}
}

func (c *chromium) visit(url string) error {
	return c.call("Page.navigate", map[string]any{"url": url}, nil)
}

// back looks at the history until it has gone back, as no page may be there to answer
// meanwhile.
func (c *chromium) back() error {
	var history struct {
		CurrentIndex int
		Entries      []struct{ ID int }
	}
	if err := c.call("Page.getNavigationHistory", nil, &history); err != nil {
		return err
	}
	want := history.CurrentIndex - 1
	if err := c.call("Page.navigateToHistoryEntry", map[string]any{"entryId": history.Entries[want].ID}, nil); err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := c.call("Page.getNavigationHistory", nil, &history)
		if err == nil && history.CurrentIndex == want {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the page before did not come back within a minute: %v", err)
		}
	}
}

func (c *chromium) value(expression string) (json.RawMessage, error) {
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	err := c.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if err == nil && r.ExceptionDetails != nil {
		err = fmt.Errorf("%s", r.ExceptionDetails)
	}
	return r.Result.Value, err
}

func (c *chromium) press(k key) error {
	p := map[string]any{"type": "keyDown", "key": k.key, "code": k.code}
	switch k.key {
	case "Enter":
		p["text"], p["windowsVirtualKeyCode"] = "\r", 13
	case " ":
		p["text"], p["windowsVirtualKeyCode"] = " ", 32
	case "Escape":
		p["windowsVirtualKeyCode"] = 27
	case "Tab":
		p["windowsVirtualKeyCode"] = 9
	case "ArrowUp":
		p["windowsVirtualKeyCode"] = 38
	case "ArrowDown":
		p["windowsVirtualKeyCode"] = 40
	default:
		p["text"] = k.key
	}
	if k.shift {
		p["modifiers"] = 8
	}
	if err := c.call("Input.dispatchKeyEvent", p, nil); err != nil {
		return err
	}
	p["type"] = "keyUp"
	delete(p, "text")
	return c.call("Input.dispatchKeyEvent", p, nil)
}

func (c *chromium) mouse(x, y float64) error {
	for _, what := range []string{"mousePressed", "mouseReleased"} {
		if err := c.call("Input.dispatchMouseEvent", map[string]any{"type": what, "x": x, "y": y, "button": "left", "clickCount": 1}, nil); err != nil {
			return err
		}
	}
	return nil
}

func (c *chromium) view(width, height int) error {
	return c.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

func (c *chromium) emulate(medium, feature, value string) error {
	p := map[string]any{"media": medium}
	if feature != "" {
		p["features"] = []map[string]string{{"name": feature, "value": value}}
	}
	return c.call("Emulation.setEmulatedMedia", p, nil)
}

func (c *chromium) picture() ([]byte, error) {
	var r struct{ Data []byte }
	err := c.call("Page.captureScreenshot", nil, &r)
	return r.Data, err
}

func (c *chromium) console() ([]string, error) {
	events := c.events
	c.events = nil
	return events, nil
}
