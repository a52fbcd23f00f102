package main

import (
	"errors"
	"fmt"
	"strings"
)

// The headings of the sections that are read and written.
const (
	differHeading = "## Where csi-volmgr differs on purpose\n"
	otherHeading  = "## Items with a condition that is otherwise on purpose\n"
	partHeading   = "## Items that are met in part\n"
	tableHeading  = "## Every item and its proof\n"
)

// differences returns the document's reasons by item: the rows of the
// table below differHeading.
func differences(doc string) (map[string]string, error) { return rows(doc, differHeading) }

// others returns, by item, the one condition that differs, and why: the rows of the table
// below otherHeading.
func others(doc string) (map[string]string, error) { return rows(doc, otherHeading) }

// parts returns what items that are met in part lack: the rows of the table below
// partHeading.
func parts(doc string) (map[string]string, error) { return rows(doc, partHeading) }

// marks returns what parts returns, and what others returns.
func marks(doc string) (open, otherwise map[string]string, err error) {
	if otherwise, err = others(doc); err == nil {
		open, err = parts(doc)
	}
	for id := range otherwise {
		if open[id] != "" {
			return nil, nil, fmt.Errorf("%s: met in part, and otherwise on purpose; want one row that says both", id)
		}
	}
	return open, otherwise, err
}

// rows reads the table below a heading, whose first column has items separated by commas.
func rows(doc, heading string) (map[string]string, error) {
	_, rest, ok := strings.Cut(doc, heading)
	if !ok {
		return nil, fmt.Errorf("no heading %q", strings.TrimSpace(heading))
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	reasons := map[string]string{}
	for row := range strings.Lines(rest) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
		if len(cells) != 2 || !strings.HasPrefix(row, "|") || strings.HasPrefix(row, "| ---") || strings.HasPrefix(row, "| item ") {
			continue
		}
		reason := strings.TrimSpace(cells[1])
		if reason == "" {
			return nil, fmt.Errorf("%s: no reason", strings.TrimSpace(cells[0]))
		}
		for id := range strings.SplitSeq(cells[0], ",") {
			id = strings.TrimSpace(id)
			if reasons[id] != "" {
				return nil, fmt.Errorf("%s: two reasons", id)
			}
			reasons[id] = reason
		}
	}
	return reasons, nil
}

// replaceTable puts a table below tableHeading, to the end of the document.
func replaceTable(doc, table string) (string, error) {
	before, _, ok := strings.Cut(doc, tableHeading)
	if !ok {
		return "", errors.New("no heading " + strings.TrimSpace(tableHeading))
	}
	return before + tableHeading + "\n" + table, nil
}

// markdown returns the table as the document has it.
func (t table) markdown() string {
	var b strings.Builder
	b.WriteString("`make parity-docs` writes this table; `make parity` prints the same from the current tests.\n\n")
	b.WriteString("| item | what | in full | proof |\n| --- | --- | --- | --- |\n")
	for _, l := range t.lines {
		proof := "missing"
		switch {
		case l.differs():
			proof = "differs, see above"
		case l.other != "":
			proof = "one condition otherwise, see above: `" + strings.Join(l.tests, "`, `") + "`"
		case l.part != "":
			proof = "part, see above: `" + strings.Join(l.tests, "`, `") + "`"
		case l.tested():
			proof = "`" + strings.Join(l.tests, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", l.ID, l.Title, strings.ReplaceAll(l.Whole, "|", `\|`), proof)
	}
	return b.String()
}
