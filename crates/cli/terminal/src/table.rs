//! The look of tables, except those of `nowait top`.

use comfy_table::{ContentArrangement, Table, TableComponent, presets};

/// Makes an empty table, at most 100 columns wide if standard output is not a terminal.
pub fn table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    for between_rows in [
        TableComponent::HorizontalLines,
        TableComponent::MiddleIntersections,
        TableComponent::LeftBorderIntersections,
        TableComponent::RightBorderIntersections,
    ] {
        table.remove_style(between_rows);
    }
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if !table.is_tty() {
        table.set_width(100);
    }
    table
}
