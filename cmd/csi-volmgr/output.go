package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	kubejson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// The forms of output of every verb that shows objects. Both tables are for people, and wide has more
// columns than table. json and yaml have the whole object, with the names of docs/reference/openapi.yaml.
const (
	formTable = "table"
	formWide  = "wide"
	formJSON  = "json"
	formYAML  = "yaml"
	// jsonPathForm begins the form that has a template, as with kubectl: -o
	// jsonpath='{.items[*].hostPath}'.
	jsonPathForm = "jsonpath="
)

// form is the value of --output.
type form struct {
	value *string
	words []string // the allowed words; a template is allowed too
}

// outputFlag adds --output, with forms that only this verb has.
func outputFlag(cmd *cobra.Command, to *string, more ...string) {
	*to = formTable
	f := form{to, append([]string{formTable, formWide, formJSON, formYAML}, more...)}
	cmd.Flags().VarP(f, "output", "o", "form of the output")
}

func (f form) String() string {
	if f.value == nil { // cobra asks a zero value
		return ""
	}
	return *f.value
}

// Set refuses an unknown form and a template with an error.
func (f form) Set(s string) error {
	if template, ok := strings.CutPrefix(s, jsonPathForm); ok {
		if _, err := parseTemplate(template); err != nil {
			return err
		}
	} else if !slices.Contains(f.words, s) {
		return errors.New("must be one of " + strings.Join(f.words, ", ") + " or jsonpath=TEMPLATE")
	}
	*f.value = s
	return nil
}

func (f form) Type() string { return strings.Join(f.words, "|") + "|jsonpath=TEMPLATE" }

// structured reports whether a form of output is for programs: the whole object, or what a template takes
// from it.
func structured(form string) bool {
	return form == formJSON || form == formYAML || strings.HasPrefix(form, jsonPathForm)
}

func parseTemplate(template string) (*jsonpath.JSONPath, error) {
	if template == "" {
		return nil, errors.New("jsonpath= without a template: expected one as jsonpath='{.items[*].name}'")
	}
	j := jsonpath.New("output")
	if err := j.Parse(template); err != nil {
		return nil, fmt.Errorf("template %q: %w", template, err)
	}
	return j, nil
}

// document writes v in a structured form.
func (p *program) document(v any, form string) error {
	b, err := render(v, form)
	if err != nil {
		return err
	}
	return writeAll(p.stdout, string(b))
}

// render returns v in a structured form. A template writes what it finds, without a newline at the end. A
// missing field is an error, because a typing error would otherwise give an empty answer.
func render(v any, form string) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, err
	}
	template, isTemplate := strings.CutPrefix(form, jsonPathForm)
	switch {
	case form == formYAML:
		return yaml.JSONToYAML(b)
	case !isTemplate:
		return append(b, '\n'), nil
	}
	j, err := parseTemplate(template)
	if err != nil {
		return nil, err
	}
	// Use JSON names, as the documents do. Whole numbers stay whole: no 1.34217728e+08.
	var plain any
	if err := kubejson.Unmarshal(b, &plain); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := j.Execute(&out, plain); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
