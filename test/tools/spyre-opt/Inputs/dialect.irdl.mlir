irdl.dialect @small {
  irdl.operation @constant {
    %0 = irdl.is i32
    irdl.results(value: %0)
  }
}
